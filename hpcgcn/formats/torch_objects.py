"""What the formats of PyTorch packages share: loading without code, and tensors as arrays."""

from __future__ import annotations

import importlib
import os
import re
import warnings
import zipfile
from functools import partial

import numpy as np

from hpcgcn.errors import ConfigError, FileError
from hpcgcn.formats.archive import check_unpacked_size
from hpcgcn.formats.draft import (
    Draft,
    check_ids,
    checked_dense,
    checked_labels,
    checked_weights,
    split_from_masks,
    unused_weights,
)
from hpcgcn.formats.files import check_readable
from hpcgcn.formats.pickle_size import check_pickle
from hpcgcn.graph.data import SPLIT_NAMES, Graph, SparseRows

_USES = {"train_mask": "train on", "val_mask": "validate on", "test_mask": "test on"}
MASKS = tuple(_USES)
_SOUND_TORCH = (2, 6)
# before torch wrote zip files: a magic number, a version, facts, the object, keys of its numbers
_LEGACY_PICKLES = 5


def package(name: str):
    """A package that only this format needs."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ConfigError(f"this format needs the package {name}, which cannot be imported here "
                          f"({error}); install it, or export the graph as npz or csv where it is "
                          "installed") from None


def load_torch(path: str | os.PathLike, classes=()):
    """What torch.save wrote, loaded without running code: only tensors, containers and the given
    data classes."""
    torch = _sound_torch()
    check_readable(path)
    check_unpacked_size(path)
    try:
        _check_pickles(path)
        with torch.serialization.safe_globals(list(classes)), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # noqa: BLE001
        # a crafted or damaged file can make the loader fail in any way
        reason = _reason(error)
        remedy = (": save tensors in place of NumPy arrays, as from torch.from_numpy(...)"
                  if " numpy." in reason else "")
        raise FileError(f"{path} is refused: {reason}; expected a file of torch.save that loads "
                        f"with weights_only=True{remedy}") from None


def _sound_torch():
    """torch, of a release whose weights_only loads no code: that of earlier ones can be deceived
    (CVE-2025-32434)."""
    torch = package("torch")
    release = re.match(r"(\d+)\.(\d+)", torch.__version__)
    if release is None or tuple(map(int, release.groups())) < _SOUND_TORCH:
        raise ConfigError(f"torch {torch.__version__} is installed, which can run code of the "
                          f"files it loads; expected {'.'.join(map(str, _SOUND_TORCH))} or "
                          "later: pip install --upgrade torch, or save the tensors as "
                          "safetensors or npz")
    return torch


def _check_pickles(path: str | os.PathLike):
    """Refuse pickles of a few bytes whose values torch would look through for ever."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if name.endswith(".pkl"):
                    pickled = archive.read(name)
                    check_pickle(pickled, len(pickled))
        return
    with open(path, "rb") as file:
        for _ in range(_LEGACY_PICKLES):
            check_pickle(file, os.path.getsize(path))


def _reason(error: Exception) -> str:
    """What is wrong, without the loader's advice on how to run the file's code."""
    asked = re.search(r"(?:GLOBAL|global) ([\w.]+)", str(error))
    if asked:
        return f"it asks for {asked.group(1)}"
    if "weights_only" in str(error):
        return "it holds more than tensors and containers"
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def array(where: str, value) -> np.ndarray:
    """A tensor as an array; FileError if it is of a kind that holds no plain numbers."""
    torch = package("torch")
    if not isinstance(value, torch.Tensor):
        raise FileError(f"{where} holds a {type(value).__name__}; expected a tensor")
    # A tensor of repeated rows may be far larger than the file, and would fill the memory.
    if not value.is_nested and (value.layout != torch.strided or _is_expanded(value)):
        raise FileError(f"{where} is a sparse or expanded tensor; expected a plain one, as from "
                        ".to_dense() or .contiguous()")
    try:
        host = (value.float() if value.dtype == torch.bfloat16 else value).detach().numpy()
    except (TypeError, RuntimeError):
        # float8, quantised, nested, without data (meta), views of complex numbers
        host = np.zeros(0, complex)
    if host.dtype.kind not in "fiub":
        kind = "nested" if value.is_nested else "meta" if value.is_meta else value.dtype
        raise FileError(f"{where} is a tensor of another kind ({kind}); expected a plain tensor "
                        "of real or whole numbers, as from .float() or .long()")
    return host


def _is_expanded(value) -> bool:
    return not value.is_meta and value.nbytes > value.untyped_storage().nbytes()


def draft_from_tensors(where: str, edges: np.ndarray, n_nodes: int | None, x, y, masks: dict,
                       weights: np.ndarray | None, others: list[str]) -> Draft:
    """A draft of the usual fields: x (n, f), y (n,) or (n, c), masks {train_mask, ...} of (n,) or
    (n, n_splits).

    Masks are arrays or tensors. weights: of edges; others: the names of further fields of edges.
    """
    if n_nodes is not None and n_nodes < 1:
        raise FileError(
            f"{where}: num_nodes is {n_nodes}; expected the number of nodes, at least 1")
    if n_nodes is None:
        n_nodes = next((len(value) for value in (x, y) if value is not None),
                       int(edges.max(initial=-1)) + 1)
    if edges.ndim != 2 or edges.shape[0] != 2 or edges.dtype.kind not in "iu":
        raise FileError(f"{where}: edges are {edges.dtype} of shape {edges.shape}; expected two "
                        "rows of node numbers")
    check_ids(where, edges, n_nodes)
    notes = [unused_weights(", ".join(others), where)] if others else []
    weights = checked_weights(where, weights, edges.shape[1])
    block = (edges[0], edges[1]) if weights is None else (edges[0], edges[1], weights)
    return Draft(lambda: [block], n_nodes, weighted=weights is not None,
                 features=None if x is None else checked_dense(f"{where} (x)", x, n_nodes),
                 labels=None if y is None else checked_labels(f"{where} (y)", y, n_nodes),
                 split=partial(_split, where, n_nodes, masks, notes) if masks else None,
                 source=os.path.basename(where), notes=notes)


def _split(where: str, n_nodes: int, masks: dict, notes: list[str]) -> np.ndarray:
    """The split of some of the three masks; one that is not there marks no node."""
    missing = [name for name in MASKS if name not in masks]
    if missing:
        notes.append(f"no {' and no '.join(missing)} in {os.path.basename(where)}: " +
                     ", ".join(f"nothing to {_USES[name]}" for name in missing))
    arrays = {name: mask if isinstance(mask, np.ndarray) else array(f"{where} ({name})", mask)
             for name, mask in masks.items()}
    return split_from_masks(where, n_nodes, *(arrays[name].T if name in arrays
                                              else np.zeros(n_nodes, bool) for name in MASKS))


def tensors_of(graph: Graph) -> dict:
    """x, y and masks of a graph as tensors."""
    torch = package("torch")
    features = graph.features.to_dense() if isinstance(graph.features,
                                                       SparseRows) else graph.features
    split = graph.split[0] if len(graph.split) == 1 else graph.split.T
    return {"x": torch.from_numpy(np.array(features)),
            "y": torch.from_numpy(np.array(graph.labels,
                                           np.float32 if graph.multilabel else np.int64)),
            **{f"{name}_mask": torch.from_numpy(np.ascontiguousarray(split == code))
               for code, name in SPLIT_NAMES.items()}}
