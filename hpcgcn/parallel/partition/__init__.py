"""The graph in parts, one per rank: halo rows are exchanged while interior rows are computed."""
