"""Full-graph GCN training over MPI, in which every published way of cutting communication is a setting."""

__version__ = "0.1.0"
