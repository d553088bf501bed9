"""Full-graph GCN training over MPI: every published way of cutting communication is a setting.

    from hpcgcn import Config, generate_sbm, train_model, write_graph
    write_graph("g.h5", generate_sbm(10_000, 20, 64, 10, seed=0))
    result = train_model("g.h5", Config(method="pipegcn", epochs=100))    # on all ranks

Every function that needs ranks takes a communicator as its last argument, `comm`; without one it is
COMM_WORLD. Nothing below is imported before it is used, and nothing is printed: messages go to the
logger "hpcgcn", and `show_messages()` shows them as the command line does.
"""

import importlib
import os
from typing import TYPE_CHECKING, Any

# Threads of OpenBLAS would spin for a while after every product, on the cores on which those of the
# kernels compute: let them sleep at once. It reads this when NumPy is loaded, which is later.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")

if TYPE_CHECKING:
    from hpcgcn.config import Config as Config, make_config as make_config
    from hpcgcn.errors import HpcgcnError as HpcgcnError
    from hpcgcn.graph.data import Graph as Graph, Part as Part, SparseRows as SparseRows
    from hpcgcn.graph.generate import (
        generate_grid as generate_grid,
        generate_rmat as generate_rmat,
        generate_sbm as generate_sbm,
    )
    from hpcgcn.graph.partition import partition_graph as partition_graph
    from hpcgcn.graph.store import (
        read_graph as read_graph,
        read_part as read_part,
        validate_graph as validate_graph,
        write_graph as write_graph,
        write_partition as write_partition,
    )
    from hpcgcn.info.verify import verify as verify
    from hpcgcn.logs import show_messages as show_messages
    from hpcgcn.train.callback import EpochReport as EpochReport
    from hpcgcn.train.inference import (
        TrainedModel as TrainedModel,
        open_model as open_model,
        predict as predict,
    )
    from hpcgcn.train.on_ranks import train_on_ranks as train_on_ranks
    from hpcgcn.train.run import Result as Result, train_model as train_model
    from hpcgcn.train.trainer import Trainer as Trainer

__version__ = "0.1.0"

_HOME = {
    "hpcgcn.config": ("Config", "make_config"),
    "hpcgcn.errors": ("HpcgcnError",),
    "hpcgcn.graph.data": ("Graph", "SparseRows", "Part"),
    "hpcgcn.graph.store": ("read_graph", "write_graph", "write_partition", "read_part",
                           "validate_graph"),
    "hpcgcn.info.verify": ("verify",),
    "hpcgcn.graph.generate": ("generate_sbm", "generate_rmat", "generate_grid"),
    "hpcgcn.graph.partition": ("partition_graph",),
    "hpcgcn.logs": ("show_messages",),
    "hpcgcn.train.callback": ("EpochReport",),
    "hpcgcn.train.inference": ("open_model", "predict", "TrainedModel"),
    "hpcgcn.train.on_ranks": ("train_on_ranks",),
    "hpcgcn.train.run": ("train_model", "Result"),
    "hpcgcn.train.trainer": ("Trainer",),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}
__all__ = [*_MODULE_OF, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'hpcgcn' has no attribute '{name}'")
    return getattr(importlib.import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
