"""Features from a file of their own: arrays (npy, npz, SciPy's save_npz), tables, triples,
svmlight, Matrix Market, JSON lists, Parquet."""

from __future__ import annotations

import numpy as np

from hpcgcn.errors import FileError, GraphError
from hpcgcn.formats import feature_text, feature_triples
from hpcgcn.formats.archive import Archive, read_npy
from hpcgcn.formats.draft import ReadOptions, checked_csr
from hpcgcn.formats.node_facts import NodeFacts, check_extent, sparse_rows
from hpcgcn.formats.parquet import table_of

FORMATS = ("auto", "dense", "triples", "svmlight")
TABLES = (".csv", ".tsv", ".txt")
_SVMLIGHT = (".svm", ".svmlight", ".libsvm")
_ARRAYS = ("x", "features", "feat", "feats", "node_features", "node_feat", "attr_matrix", "arr_0")
_ENDINGS = (".npy", ".npz", ".json", ".mtx", ".parquet", *TABLES, *_SVMLIGHT)


def read_features(path: str, options: ReadOptions) -> NodeFacts:
    """The features in a file; its ending says of which kind it is, --features-format for text."""
    name = path.lower().removesuffix(".gz")
    if name.endswith(".npy"):
        return _dense(path, read_npy(path))
    if name.endswith(".npz"):
        return _from_archive(path)
    if name.endswith(".json"):
        return feature_triples.read_json_lists(path)
    if name.endswith(".mtx"):
        return feature_triples.read_matrix_market(path)
    if name.endswith(".parquet"):
        return feature_text.read_dense(table_of(path, options.scratch), options)
    kind = options.features_format
    if name.endswith(_SVMLIGHT) or kind == "svmlight":
        return feature_triples.read_svmlight(path)
    if name.endswith(TABLES) or kind != "auto":
        return feature_text.read_table(path, options)
    raise FileError(f"{path}: the name does not tell what it holds; expected a name that ends with "
                    f"{', '.join(_ENDINGS)} (text may be packed: .gz)")


def _dense(path: str, values: np.ndarray) -> NodeFacts:
    values = values[:, None] if values.ndim == 1 else values
    if values.ndim != 2 or values.dtype.kind not in "fiub" or 0 in values.shape:
        raise FileError(f"{path}: features are {values.dtype} of shape {values.shape}; expected "
                        "numbers, a row per node and a column per feature")
    return NodeFacts(path, len(values), features=values)


def _from_archive(path: str) -> NodeFacts:
    with Archive(path) as archive:
        if "format" in archive and "shape" in archive:
            return _from_scipy(path, archive)
        names = archive.names()
        name = next((name for name in _ARRAYS if name in names),
                    next(iter(names)) if len(names) == 1 else None)
        if name is None:
            raise FileError(f"{path} holds the arrays {', '.join(sorted(names))[:200]}; expected "
                            f"one of {', '.join(_ARRAYS)}, or a file of scipy.sparse.save_npz")
        return _dense(f"{path} ({name})", archive[name])


def _from_scipy(path: str, archive: Archive) -> NodeFacts:
    """What scipy.sparse.save_npz writes, of the formats csr, csc and coo."""
    form, shape = archive["format"], archive["shape"].reshape(-1)
    kind = form.tobytes().replace(b"\0", b"").decode("ascii", "replace")[:10]
    if form.dtype.kind not in "SU" or kind not in ("csr", "csc", "coo"):
        raise FileError(f"{path}: a sparse matrix in the format {kind!r}; expected csr, csc or "
                        "coo, as from .tocsr()")
    if len(shape) != 2 or shape.dtype.kind not in "iu" or not all(
            0 < size < 2 ** 31 for size in shape.tolist()):
        raise FileError(f"{path}: its shape is {shape[:4].tolist()}; expected the numbers of nodes "
                        "and of features")
    n_rows, n_columns = map(int, shape)
    values = archive["data"]
    if values.ndim != 1 or values.dtype.kind not in "fiub":
        raise FileError(f"{path}: its data are {values.dtype} of shape {values.shape}; expected a "
                        "list of numbers")
    check_extent(path, n_rows, n_columns, len(values))
    rows, columns = _coordinates(path, archive, kind, n_rows, n_columns)
    if len(rows) != len(values):
        raise FileError(f"{path}: {len(values)} values for {len(rows)} places; expected one each")
    return NodeFacts(path, n_rows,
                     features=sparse_rows(path, n_rows, n_columns, rows, columns, values))


def _coordinates(path: str, archive: Archive, kind: str, n_rows: int,
                 n_columns: int) -> tuple[np.ndarray, np.ndarray]:
    """(rows, columns) of all entries, int64."""
    if kind == "coo":
        places = [archive[name] for name in ("row", "col")]
        for array, size in zip(places, (n_rows, n_columns)):
            if array.ndim != 1 or array.dtype.kind not in "iu" or len(array) != len(places[0]) or (
                    len(array) and not 0 <= array.min() <= array.max() < size):
                raise FileError(f"{path}: its row and col do not fit its shape; expected numbers "
                                f"within {n_rows} x {n_columns}")
        return places[0].astype(np.int64), places[1].astype(np.int64)
    sizes = (n_rows, n_columns) if kind == "csr" else (n_columns, n_rows)
    try:
        indptr, indices = checked_csr(path, archive["indptr"], archive["indices"], *sizes)
    except GraphError as error:
        raise FileError(error) from None
    major = np.repeat(np.arange(sizes[0]), np.diff(indptr))
    minor = indices.astype(np.int64)
    return (major, minor) if kind == "csr" else (minor, major)
