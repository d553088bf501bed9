"""A graph saved by PyG: torch.save of a Data object, of its dictionary, or a processed
InMemoryDataset of one graph."""

from __future__ import annotations

import numpy as np

from hpcgcn.errors import FileError
from hpcgcn.formats.draft import Draft, ReadOptions
from hpcgcn.formats.torch_objects import (
    MASKS,
    array,
    draft_from_tensors,
    load_torch,
    package,
    tensors_of,
)
from hpcgcn.graph.csr import row_numbers
from hpcgcn.graph.data import Graph

WEIGHTS = ("edge_weight", "edge_attr")


def recognises(sources: list[str]) -> bool:
    """Is this a file with PyG's Data object?"""
    return len(sources) == 1 and sources[0].endswith((".pt", ".pth"))


def read(sources: list[str], options: ReadOptions) -> Draft:
    """The graph in a file with PyG's Data object."""
    path = str(sources[0])
    loaded = load_torch(path, _data_classes())
    if isinstance(loaded, tuple) and loaded:
        _check_one_graph(path, loaded[1] if len(loaded) > 1 else None)
        loaded = loaded[0]                   # (data, slices, class) of a processed data set
    fields = _fields(path, loaded)
    if not isinstance(fields, dict) or "edge_index" not in fields:
        raise FileError(f"{path} holds a {type(loaded).__name__} without edge_index; expected one "
                        "graph of PyG")
    tensors = {name: array(f"{path} ({name})", fields[name])
               for name in ("edge_index", "x", "y", *_weight_fields(fields, options))
               if fields.get(name) is not None}
    n_nodes = fields.get("num_nodes")
    return draft_from_tensors(
        path, tensors["edge_index"], n_nodes if isinstance(n_nodes, int) else None,
        tensors.get("x"),
        tensors.get("y"), {name: fields[name] for name in MASKS if fields.get(name) is not None},
        *(next(((tensors[name], []) for name in WEIGHTS if name in tensors),
               (None, [name for name in WEIGHTS if fields.get(name) is not None]))))


def _weight_fields(fields: dict, options: ReadOptions) -> tuple[str, ...]:
    """Where the weights of edges are: edge_weight, or edge_attr if that is one number per edge."""
    if not options.weights:
        return ()
    if fields.get("edge_weight") is not None:
        return ("edge_weight",)
    shape = tuple(getattr(fields.get("edge_attr"), "shape", ()))
    return ("edge_attr",) if len(shape) == 1 or (len(shape) == 2 and shape[1] == 1) else ()


def _fields(path: str, loaded):
    """The arrays of a Data object by name, or None if it is something else."""
    if isinstance(loaded, dict):
        return loaded
    try:
        return loaded.to_dict() if hasattr(loaded, "to_dict") else None
    except Exception as error:
        # PyG's own code, on whatever attributes the file gave the object.
        raise FileError(f"{path} is damaged: PyG cannot tell what its {type(loaded).__name__} "
                        f"holds ({type(error).__name__}); expected one graph as "
                        "torch.save writes it") from error


def _check_one_graph(path: str, slices):
    """A data set of several graphs has their edges one after the other, each counting its nodes
    from zero."""
    bounds = slices.get("edge_index") if isinstance(slices, dict) else None
    if bounds is not None and len(bounds) != 2:
        raise FileError(f"{path} is a data set of {len(bounds) - 1} graphs; expected one graph: "
                        "save the one that is meant with torch.save(dataset[0], ...)")


def _data_classes() -> list:
    """The classes that a saved Data object consists of: containers of tensors."""
    data, storage = package("torch_geometric.data.data"), package("torch_geometric.data.storage")
    return [data.Data, data.DataEdgeAttr, data.DataTensorAttr, storage.GlobalStorage]


def write(path: str, graph: Graph):
    """A Data object with edge_index, x, y and masks."""
    torch, data = package("torch"), package("torch_geometric.data")
    edges = np.stack([graph.indices, row_numbers(graph.indptr)]).astype(np.int64)
    weights = ({} if graph.edge_weights is None
               else {"edge_weight": torch.from_numpy(np.array(graph.edge_weights))})
    made = data.Data(edge_index=torch.from_numpy(edges), num_nodes=graph.n_nodes,
                     **tensors_of(graph), **weights)
    with open(path, "wb") as file:
        torch.save(made, file)
