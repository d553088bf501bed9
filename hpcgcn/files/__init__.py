"""Writing and removing files: whole or not at all, and nothing that is not ours."""
