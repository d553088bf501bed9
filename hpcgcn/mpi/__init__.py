"""What ranks do together: start and end, errors, halo plans, progress of messages, heartbeats."""
