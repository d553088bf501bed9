"""What `benchmarks/fuzz_inputs.py` consists of: sound files, ways to damage them, and what a user
does with each."""
