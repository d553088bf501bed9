"""Timelines of runs: collected from all ranks into trace.json, read back, shown."""
