"""A graph in memory, and the part of it that one rank owns."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

# Codes of the `split` arrays: what a node's label is used for.
UNUSED, TRAIN, VAL, TEST = 0, 1, 2, 3
SPLIT_NAMES = {TRAIN: "train", VAL: "val", TEST: "test"}


@dataclass
class SparseRows:
    """Sparse features: row i holds columns indices[indptr[i]:indptr[i+1]]; no values means all
    ones."""

    indptr: np.ndarray                 # (n + 1,) int64
    indices: np.ndarray                # (nnz,) int32
    values: np.ndarray | None          # (nnz,) float32, or None for all ones
    n_columns: int

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        return len(self.indptr) - 1, self.n_columns

    def rows(self, start: int, stop: int) -> SparseRows:
        """The rows start:stop, as views."""
        first, last = self.indptr[start], self.indptr[stop]
        values = None if self.values is None else self.values[first:last]
        return SparseRows(self.indptr[start:stop + 1] - first, self.indices[first:last], values,
                          self.n_columns)

    def take(self, order: np.ndarray) -> SparseRows:
        """The rows in the given order, copied."""
        lengths = np.diff(self.indptr)[order]
        indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        positions = np.repeat(self.indptr[order] - indptr[:-1], lengths) + np.arange(indptr[-1])
        values = None if self.values is None else self.values[positions]
        return SparseRows(indptr, self.indices[positions], values, self.n_columns)

    def to_dense(self, dtype=np.float32) -> np.ndarray:
        """The same features as a dense (n, n_columns) array."""
        dense = np.zeros(self.shape, dtype)
        rows = np.repeat(np.arange(self.shape[0]), np.diff(self.indptr))
        np.add.at(dense, (rows, self.indices), 1 if self.values is None else self.values)
        return dense


@dataclass
class Graph:
    """A whole graph. Row v of the CSR lists the in-neighbours of v, sorted, without self loops."""

    indptr: np.ndarray                 # (n_nodes + 1,) int64
    indices: np.ndarray                # (n_edges,) int32, or int64 where n_nodes needs it
    features: np.ndarray | SparseRows  # (n_nodes, n_features) float32 or float16, or sparse rows
    labels: np.ndarray  # (n_nodes,) int32 with -1 = no label, or (n_nodes, n_classes) uint8
    split: np.ndarray                  # (n_splits, n_nodes) uint8 of the codes above
    n_classes: int
    directed: bool = False             # False: every edge is there both ways
    node_names: np.ndarray | None = None   # (n_nodes,) the user's own ids, int64 or bytes, or None
    source: str = ""                   # where it came from, for people
    # further facts to keep: column names, id columns, class names
    extra: dict = field(default_factory=dict)
    uuid: str = ""                     # of the file it was written to or read from, or ""
    # (n_edges,) float32, not negative, in the order of `indices`; None: all are 1
    edge_weights: np.ndarray | None = None

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return len(self.indptr) - 1

    @property
    def n_edges(self) -> int:
        """Number of directed edges: an undirected one counts twice."""
        return len(self.indices)

    @property
    def n_features(self) -> int:
        """Number of features of a node."""
        return self.features.shape[1]

    @property
    def multilabel(self) -> bool:
        """May a node have several classes?"""
        return self.labels.ndim == 2

    # -- from objects of other packages, checked, and back ----------------------------------------
    @classmethod
    def from_numpy(cls, sources, targets, features=None, labels=None, split=None, *, n_nodes=None,
                   edge_weights=None, undirected=False, node_names=None) -> Graph:
        """Edges source -> target between node numbers; see graph_of_edges for the rest."""
        from hpcgcn.graph.convert import graph_of_edges
        return graph_of_edges(sources, targets, features, labels, split, n_nodes=n_nodes,
                              edge_weights=edge_weights, undirected=undirected,
                              node_names=node_names)

    @classmethod
    def from_scipy(cls, adjacency, features=None, labels=None, split=None, *, weights=True,
                   undirected=False) -> Graph:
        """A sparse adjacency: entry [u, v] is the weight of the edge from u to v."""
        from hpcgcn.graph.convert_objects import from_scipy
        return from_scipy(adjacency, features, labels, split, weights, undirected)

    @classmethod
    def from_pandas(cls, edges, nodes=None, *, source="source", target="target", weight="weight",
                    id="id", label="label", split="split", features=None,
                    undirected=False) -> Graph:
        """A table of edges and one of nodes; features: names of columns (None: all others)."""
        from hpcgcn.graph.convert_objects import from_pandas
        return from_pandas(edges, nodes, {"source": source, "target": target, "weight": weight,
                                          "id": id, "label": label, "split": split}, features,
                           undirected)

    @classmethod
    def from_networkx(cls, graph, *, features="x", label="label", split="split",
                      weight="weight") -> Graph:
        """A graph of networkx, with these attributes of nodes and edges."""
        from hpcgcn.graph.convert_objects import from_networkx
        return from_networkx(graph, features, label, split, weight)

    @classmethod
    def from_pyg(cls, data) -> Graph:
        """PyG's Data: edge_index, x, y, masks, edge_weight."""
        from hpcgcn.graph.convert_objects import from_pyg
        return from_pyg(data)

    @classmethod
    def from_dgl(cls, graph) -> Graph:
        """DGL's graph: feat, label and masks of nodes, w or weight of edges."""
        from hpcgcn.graph.convert_objects import from_dgl
        return from_dgl(graph)

    def to_scipy(self):
        """The adjacency as SciPy's csr_matrix: entry [u, v] is the edge from u to v."""
        from hpcgcn.graph.convert_objects import to_scipy
        return to_scipy(self)

    def to_pandas(self):
        """(edges, nodes), two tables of pandas."""
        from hpcgcn.graph.convert_objects import to_pandas
        return to_pandas(self)

    def to_networkx(self):
        """A graph of networkx."""
        from hpcgcn.graph.convert_objects import to_networkx
        return to_networkx(self)

    def to_pyg(self):
        """PyG's Data."""
        from hpcgcn.graph.convert_objects import to_pyg
        return to_pyg(self)

    def to_dgl(self):
        """DGL's graph."""
        from hpcgcn.graph.convert_objects import to_dgl
        return to_dgl(self)


@dataclass
class Part:
    """What one rank owns: a contiguous run of nodes in the order of the partition file."""

    offsets: np.ndarray  # (n_parts + 1,) int64: part p owns nodes offsets[p]:offsets[p + 1]
    rank: int
    indptr: np.ndarray                 # (n_owned + 1,) int64
    indices: np.ndarray  # (n_local_edges,) in-neighbours as GLOBAL ids in the file's order
    features: np.ndarray | SparseRows  # (n_owned, n_features)
    labels: np.ndarray                 # (n_owned,) int32 or (n_owned, n_classes) uint8
    split: np.ndarray                  # (n_owned,) uint8: the one split that was asked for
    original_ids: np.ndarray  # (n_owned,) int64: ids in the graph file; all random draws use these
    n_classes: int
    directed: bool
    # (n_chunks + 1,) where each chunk begins, counted from this part's first node
    chunks: np.ndarray | None = None
    edge_weights: np.ndarray | None = None     # (n_local_edges,) float32; None: all are 1
    # (n_halo,) bool: is a halo row sent as it is, or only in sums? None: that is not known yet
    halo_cover: np.ndarray | None = None

    @property
    def n_parts(self) -> int:
        """Number of parts of the partition."""
        return len(self.offsets) - 1

    @property
    def n_owned(self) -> int:
        """Number of nodes of this part."""
        return len(self.indptr) - 1

    @property
    def n_nodes(self) -> int:
        """Nodes of the whole graph."""
        return int(self.offsets[-1])

    @property
    def n_features(self) -> int:
        """Number of features of a node."""
        return self.features.shape[1]

    @property
    def multilabel(self) -> bool:
        """May a node have several classes?"""
        return self.labels.ndim == 2

    @classmethod
    def whole(cls, graph: Graph, split_index: int = 0) -> Part:
        """The only part of a graph that is not divided."""
        return cls(offsets=np.array([0, graph.n_nodes], np.int64), rank=0,
                   indptr=graph.indptr, indices=graph.indices, features=graph.features,
                   labels=graph.labels, split=graph.split[split_index],
                   original_ids=np.arange(graph.n_nodes, dtype=np.int64),
                   n_classes=graph.n_classes, directed=graph.directed,
                   edge_weights=graph.edge_weights)
