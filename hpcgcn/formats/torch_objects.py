"""What the formats of PyTorch packages share: loading without code, and tensors as arrays."""

from __future__ import annotations

import importlib
import os
import re
import warnings

import numpy as np

from hpcgcn.errors import ConfigError, FileError
from hpcgcn.formats.archive import check_unpacked_size
from hpcgcn.formats.draft import Draft, checked_dense, checked_labels, split_from_masks
from hpcgcn.formats.files import check_readable
from hpcgcn.graph.data import SPLIT_NAMES, Graph, SparseRows


def package(name: str):
    """A package that only this format needs."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ConfigError(f"this format needs the package {name}, which cannot be imported here ({error}); install it, or export "
                          "the graph as npz or csv where it is installed") from None


def load_torch(path: str | os.PathLike, classes=()):
    """What torch.save wrote, loaded without running code: only tensors, containers and the given data classes."""
    torch = package("torch")
    check_readable(path)
    check_unpacked_size(path)
    try:
        with torch.serialization.safe_globals(list(classes)), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:     # a crafted or damaged file can make the loader fail in any way
        raise FileError(f"{path} is refused: {_reason(error)}; expected a file of torch.save that loads with "
                        "weights_only=True") from None


def _reason(error: Exception) -> str:
    """What is wrong, without the loader's advice on how to run the file's code."""
    asked = re.search(r"(?:GLOBAL|global) ([\w.]+)", str(error))
    if asked:
        return f"it asks for {asked.group(1)}"
    if "weights_only" in str(error):
        return "it holds more than tensors and containers"
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def array(where: str, value) -> np.ndarray:
    """A tensor as an array."""
    if not hasattr(value, "detach"):
        raise FileError(f"{where} holds a {type(value).__name__}; expected a tensor")
    value = value.detach().cpu()
    # A tensor of repeated rows may be far larger than the file, and would fill the memory.
    if value.layout != package("torch").strided or value.nbytes > value.untyped_storage().nbytes():
        raise FileError(f"{where} is a sparse or expanded tensor; expected a plain one, as from .to_dense() or .contiguous()")
    return value.float().numpy() if value.dtype == package("torch").bfloat16 else value.numpy()


def draft_from_tensors(where: str, edges: np.ndarray, n_nodes: int | None, x, y, masks: dict) -> Draft:
    """A draft of the usual fields: x (n, f), y (n,) or (n, c), masks {train, val, test} of (n,) or (n, n_splits)."""
    if n_nodes is None:
        n_nodes = next((len(value) for value in (x, y) if value is not None), int(edges.max(initial=-1)) + 1)
    if edges.ndim != 2 or edges.shape[0] != 2 or edges.dtype.kind not in "iu":
        raise FileError(f"{where}: edges are {edges.dtype} of shape {edges.shape}; expected two rows of node numbers")
    wrong = edges[(edges < 0) | (edges >= n_nodes)]
    if len(wrong):
        raise FileError(f"{where}: there is an edge to node {wrong[0]}; expected ids in 0..{n_nodes - 1}")
    split = None
    if masks and len(masks) != 3:
        raise FileError(f"{where} has {' and '.join(masks)} alone; expected train_mask, val_mask and test_mask, or none of them")
    if masks:
        split = split_from_masks(where, n_nodes, *(mask.T if mask.ndim == 2 else mask for mask in masks.values()))
    return Draft(lambda: [(edges[0], edges[1])], n_nodes, features=None if x is None else checked_dense(f"{where} (x)", x, n_nodes),
                 labels=None if y is None else checked_labels(f"{where} (y)", y, n_nodes), split=split,
                 source=os.path.basename(where))


def tensors_of(graph: Graph) -> dict:
    """x, y and masks of a graph as tensors."""
    torch = package("torch")
    features = graph.features.to_dense() if isinstance(graph.features, SparseRows) else graph.features
    split = graph.split[0] if len(graph.split) == 1 else graph.split.T
    return {"x": torch.from_numpy(np.array(features)),
            "y": torch.from_numpy(np.array(graph.labels, np.float32 if graph.multilabel else np.int64)),
            **{f"{name}_mask": torch.from_numpy(np.ascontiguousarray(split == code)) for code, name in SPLIT_NAMES.items()}}
