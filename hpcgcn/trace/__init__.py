"""Recording what this rank does, and when."""
