"""Graphs: files, checks, generators, partitions and orders of nodes."""
