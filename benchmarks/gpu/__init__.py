"""The parts of benchmarks/gpu_day.py: steps, what they run, what they find, and the page."""
