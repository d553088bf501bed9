"""Runs side by side: one self-contained HTML page, or the curves as a picture."""
