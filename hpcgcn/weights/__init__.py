"""Weights in and out, with the parameter names and layouts of PyG and DGL."""
