"""What a file of ours holds, and whether it is sound, whatever its kind."""
