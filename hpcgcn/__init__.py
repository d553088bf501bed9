"""Full-graph GCN training over MPI, in which every published way of cutting communication is a setting.

    from hpcgcn import generate_sbm, make_config, train_model, write_graph
    write_graph("g.h5", generate_sbm(10_000, 20, 64, 10, seed=0))
    result = train_model("g.h5", make_config({"method": "pipegcn", "epochs": 100}))     # on all ranks of COMM_WORLD

Every function that needs ranks takes a communicator. Nothing below is imported before it is used.
"""

import importlib

__version__ = "0.1.0"

_HOME = {
    "Config": "hpcgcn.config", "make_config": "hpcgcn.config",
    "HpcgcnError": "hpcgcn.errors",
    "Graph": "hpcgcn.graph.data", "SparseRows": "hpcgcn.graph.data", "Part": "hpcgcn.graph.data",
    "read_graph": "hpcgcn.graph.store", "write_graph": "hpcgcn.graph.store", "write_partition": "hpcgcn.graph.store",
    "read_part": "hpcgcn.graph.store", "validate_graph": "hpcgcn.graph.store", "verify": "hpcgcn.graph.store",
    "generate_sbm": "hpcgcn.graph.generate", "generate_rmat": "hpcgcn.graph.generate",
    "generate_grid": "hpcgcn.graph.generate",
    "partition_graph": "hpcgcn.graph.partition",
    "train_model": "hpcgcn.train.run", "Result": "hpcgcn.train.run",
    "Trainer": "hpcgcn.train.trainer",
    "open_model": "hpcgcn.train.inference", "predict": "hpcgcn.train.inference", "TrainedModel": "hpcgcn.train.inference",
}
__all__ = [*_HOME, "__version__"]


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(f"module 'hpcgcn' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__():
    return sorted(__all__)
