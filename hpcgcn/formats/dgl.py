"""A graph saved by DGL: the first graph of dgl.save_graphs, with feat, label and masks as node data."""

from __future__ import annotations

import numpy as np

from hpcgcn.errors import FileError
from hpcgcn.formats.draft import Draft, ReadOptions
from hpcgcn.formats.files import check_readable
from hpcgcn.formats.output import atomic_file
from hpcgcn.formats.torch_objects import array, draft_from_tensors, package, tensors_of
from hpcgcn.graph.csr import row_numbers
from hpcgcn.graph.data import Graph

HELP = "a file of dgl.save_graphs with one homogeneous graph (needs dgl)"
_NAMES = {"x": ("feat", "feature", "features", "x"), "y": ("label", "labels", "y")}


def recognises(sources: list[str]) -> bool:
    return len(sources) == 1 and sources[0].endswith((".dgl", ".dgl.bin"))


def read(sources: list[str], options: ReadOptions) -> Draft:
    dgl = package("dgl")
    path = str(sources[0])
    check_readable(path)
    try:
        graph = dgl.load_graphs(path, [0])[0][0]
    except Exception as error:     # DGL raises its own errors for damaged files
        raise FileError(f"{path} cannot be read ({str(error).strip().splitlines()[-1][:200]}); expected a file of "
                        "dgl.save_graphs") from None
    if not graph.is_homogeneous:
        raise FileError(f"{path} holds a graph of several node or edge types; expected a homogeneous one")
    sources_, targets = graph.edges()
    fields = {kind: next((array(f"{path} ({name})", graph.ndata[name]) for name in names if name in graph.ndata), None)
              for kind, names in _NAMES.items()}
    masks = {name: array(f"{path} ({name})", graph.ndata[name]) for name in ("train_mask", "val_mask", "test_mask")
             if name in graph.ndata}
    edges = np.stack([array(path, sources_), array(path, targets)])
    return draft_from_tensors(path, edges, graph.num_nodes(), fields["x"], fields["y"], masks)


def write(path: str, graph: Graph):
    """One graph with feat, label and masks."""
    dgl, torch = package("dgl"), package("torch")
    made = dgl.graph((torch.from_numpy(graph.indices.astype(np.int64)), torch.from_numpy(row_numbers(graph.indptr))),
                     num_nodes=graph.n_nodes)
    for name, value in tensors_of(graph).items():
        made.ndata[{"x": "feat", "y": "label"}.get(name, name)] = value
    with atomic_file(path) as temporary:
        dgl.save_graphs(temporary, [made])
