"""Training and inference: the loop, evaluation, checkpoints, metrics and the folder of a run."""
