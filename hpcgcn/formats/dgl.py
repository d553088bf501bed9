"""A graph saved by DGL: the first graph of dgl.save_graphs, with feat, label and masks as node
data."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile

import numpy as np

from hpcgcn.errors import FileError
from hpcgcn.formats.archive import Archive
from hpcgcn.formats.draft import Draft, ReadOptions
from hpcgcn.formats.files import check_readable
from hpcgcn.formats.torch_objects import MASKS, draft_from_tensors, package, tensors_of
from hpcgcn.graph.csr import row_numbers
from hpcgcn.graph.data import Graph


def recognises(sources: list[str]) -> bool:
    """Is this a file of dgl.save_graphs?"""
    return len(sources) == 1 and sources[0].endswith((".dgl", ".dgl.bin"))


def read(sources: list[str], options: ReadOptions) -> Draft:
    """The graph in a file of dgl.save_graphs."""
    path = str(sources[0])
    check_readable(path)
    if importlib.util.find_spec("dgl") is None:
        package("dgl")                     # says what to do
    with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
        arrays = os.path.join(folder, "graph.npz")
        child = subprocess.run([sys.executable, "-m", "hpcgcn.formats.dgl_loader", path, arrays],
                               capture_output=True, text=True)
        if child.returncode == 1 and child.stdout:
            raise FileError(f"{path} {child.stdout.strip().splitlines()[-1]}")
        if child.returncode:
            raise FileError(f"{path} cannot be read (DGL ended with the code "
                            f"{child.returncode}); expected a sound file of dgl.save_graphs")
        return draft_of_arrays(path, arrays, options.weights)


def draft_of_arrays(path: str, arrays: str, weights: bool = True) -> Draft:
    """The draft of what the loader saved of a file; weights: are those of edges wanted?"""
    with Archive(arrays) as tensors:
        n_nodes, edge_data = tensors["n_nodes"], tensors["edge_data"]
        if (n_nodes.shape != () or n_nodes.dtype.kind not in "iu" or edge_data.ndim != 1
            or edge_data.dtype.kind != "U"):
            raise FileError(f"{path}: the number of nodes or the names of edge data are damaged; "
                            "expected what hpcgcn.formats.dgl_loader writes: try again")
        masks = {name: tensors[name] for name in MASKS if name in tensors}
        return draft_from_tensors(path, tensors["edges"], int(n_nodes), tensors.get("x"),
                                  tensors.get("y"), masks,
                                  tensors.get("weight") if weights else None, edge_data.tolist())


def write(path: str, graph: Graph):
    """One graph with feat, label and masks."""
    dgl, torch = package("dgl"), package("torch")
    made = dgl.graph((torch.from_numpy(graph.indices.astype(np.int64)),
                      torch.from_numpy(row_numbers(graph.indptr))), num_nodes=graph.n_nodes)
    for name, value in tensors_of(graph).items():
        made.ndata[{"x": "feat", "y": "label"}.get(name, name)] = value
    if graph.edge_weights is not None:
        made.edata["w"] = torch.from_numpy(np.array(graph.edge_weights))
    dgl.save_graphs(path, [made])
