"""Graphs of SciPy, pandas, networkx, PyG and DGL: into a Graph in one call, and back."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from hpcgcn.errors import ConfigError, GraphError
from hpcgcn.graph.convert import MASKS, dense, ends_of, graph_of_edges, masks_of, split_of_masks
from hpcgcn.graph.data import SPLIT_NAMES, Graph

_WEIGHTS = ("edge_weight", "weight", "w")


def _package(name: str):
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ConfigError(f"this needs the package {name}, which cannot be imported here "
                          f"({error}): pip install {name}") from None


# -- SciPy -----------------------------------------------------------------------------------------
def from_scipy(adjacency: Any, features: Any, labels: Any, split: Any, weights: bool,
               undirected: bool) -> Graph:
    """Entry [u, v] of the matrix is the edge from u to v."""
    if not hasattr(adjacency, "tocoo") or adjacency.shape[0] != adjacency.shape[1]:
        raise GraphError(f"the adjacency is a {type(adjacency).__name__} of shape "
                         f"{getattr(adjacency, 'shape', '?')}: expected a square sparse matrix")
    matrix = adjacency.tocsr(copy=True)
    matrix.sum_duplicates()
    matrix = matrix.tocoo()
    return graph_of_edges(matrix.row, matrix.col, features, labels, split,
                          n_nodes=adjacency.shape[0], undirected=undirected,
                          edge_weights=matrix.data if weights else None)


def to_scipy(graph: Graph):
    """The adjacency: entry [u, v] is the weight of the edge from u to v, or 1."""
    import scipy.sparse
    sources, targets = ends_of(graph)
    weights = np.ones(graph.n_edges, np.float32) if graph.edge_weights is None \
        else graph.edge_weights
    return scipy.sparse.csr_matrix((weights, (sources, targets)), shape=(graph.n_nodes,) * 2)


# -- pandas ----------------------------------------------------------------------------------------
def from_pandas(edges: Any, nodes: Any, columns: dict[str, str], features: list[str] | None,
                undirected: bool) -> Graph:
    """Two tables: edges, and nodes with ids; columns: names of source, target, weight, id, label
    and split."""
    for name in ("source", "target"):
        _check_column(edges, columns[name], "edges")
    pairs_of_ids = [edges[columns[name]].tolist() for name in ("source", "target")]
    weights = edges[columns["weight"]].to_numpy() if columns["weight"] in edges else None
    if nodes is None:
        ids = sorted(set(pairs_of_ids[0]) | set(pairs_of_ids[1]))
        sources, targets = _numbered(pairs_of_ids, ids)
        return graph_of_edges(sources, targets, n_nodes=len(ids), edge_weights=weights,
                              undirected=undirected, node_names=ids)
    _check_column(nodes, columns["id"], "nodes")
    ids = nodes[columns["id"]].tolist()
    if len(set(ids)) != len(ids):
        raise GraphError(f"two nodes have the same {columns['id']}: expected different ones")
    special = {columns[name] for name in ("id", "label", "split")}
    chosen = [name for name in nodes.columns if name not in special] if features is None \
        else features
    for name in chosen:
        _check_column(nodes, name, "nodes")
        if nodes[name].dtype.kind not in "iufb":
            raise GraphError(f"the column {str(name)[:60]!r} of nodes holds {nodes[name].dtype}: "
                             "expected numbers, or features=[...] without it")
    sources, targets = _numbered(pairs_of_ids, ids)
    return graph_of_edges(sources, targets,
                          nodes[chosen].to_numpy(np.float32) if chosen else None,
                          _column(nodes, columns["label"]), _column(nodes, columns["split"]),
                          n_nodes=len(ids), edge_weights=weights, undirected=undirected,
                          node_names=None if ids == list(range(len(ids))) else ids)


def _check_column(table: Any, name: str, what: str):
    if name not in table.columns:
        raise GraphError(f"{what} have no column {str(name)[:60]!r}: expected one of "
                         f"{', '.join(map(str, table.columns))[:200]}")


def _column(table: Any, name: str) -> np.ndarray | None:
    return table[name].to_numpy() if name in table.columns else None


def _numbered(pairs_of_ids: list[list], ids: list) -> list[list[int]]:
    number = {identity: k for k, identity in enumerate(ids)}
    try:
        return [[number[identity] for identity in one_end] for one_end in pairs_of_ids]
    except KeyError as error:
        raise GraphError(f"an edge to node {str(error)[:60]}, which is not among the {len(ids)} "
                         "nodes: expected its row there") from None


def to_pandas(graph: Graph):
    """(edges, nodes): tables with source, target, weight; id, label, split, x0, x1, ..."""
    pandas = _package("pandas")
    names = names_of_nodes(graph)
    sources, targets = ends_of(graph)
    edges = pandas.DataFrame({"source": [names[k] for k in sources],
                              "target": [names[k] for k in targets]})
    if graph.edge_weights is not None:
        edges["weight"] = graph.edge_weights
    facts: dict[str, Any] = {"id": names}
    if graph.multilabel:
        facts |= {f"label:{k}": graph.labels[:, k] for k in range(graph.n_classes)}
    else:
        facts["label"] = graph.labels
    facts["split"] = [SPLIT_NAMES.get(int(code), "") for code in graph.split[0]]
    features = dense(graph.features)
    facts |= {f"x{k}": features[:, k] for k in range(features.shape[1])}
    return edges, pandas.DataFrame(facts)


def names_of_nodes(graph: Graph) -> list:
    """The user's own ids, or the numbers of the nodes."""
    if graph.node_names is None:
        return list(range(graph.n_nodes))
    return [name.decode() if isinstance(name, bytes) else name
            for name in graph.node_names.tolist()]


# -- networkx --------------------------------------------------------------------------------------
def from_networkx(given: Any, features: str, label: str, split: str, weight: str) -> Graph:
    """The attributes of nodes of these names are taken where all nodes have them."""
    if given.is_multigraph():
        raise GraphError("a multigraph: expected one edge between two nodes, as in "
                         "networkx.Graph(g)")
    ids = list(given.nodes)
    number = {identity: k for k, identity in enumerate(ids)}
    triples = [(number[a], number[b], facts.get(weight)) for a, b, facts in given.edges(data=True)]
    weights = None
    if triples and all(value is not None for *_, value in triples):
        weights = np.array([value for *_, value in triples], np.float64)
    rows = _attribute(given, ids, features)
    return graph_of_edges([a for a, *_ in triples], [b for _, b, _ in triples],
                          None if rows is None else np.array(rows, np.float32),
                          _attribute(given, ids, label), _attribute(given, ids, split),
                          n_nodes=len(ids), edge_weights=weights,
                          undirected=not given.is_directed(),
                          node_names=None if ids == list(range(len(ids))) else ids)


def _attribute(given: Any, ids: list, name: str) -> list | None:
    """The attribute of every node; None if none has it; an error if some have not."""
    values = [given.nodes[identity].get(name) for identity in ids]
    missing = next((k for k, value in enumerate(values) if value is None), None)
    if missing is None or all(value is None for value in values):
        return None if missing is not None or not values else values
    raise GraphError(f"node {str(ids[missing])[:60]!r} has no attribute {name!r}, but others have: "
                     "expected it of every node")


def to_networkx(graph: Graph):
    """A Graph or DiGraph whose nodes have x, label and split, and edges a weight."""
    networkx = _package("networkx")
    made = networkx.DiGraph() if graph.directed else networkx.Graph()
    names, features = names_of_nodes(graph), dense(graph.features)
    for node, name in enumerate(names):
        label = graph.labels[node]
        made.add_node(name, x=features[node].tolist(),
                      label=label.tolist() if graph.multilabel else int(label),
                      split=SPLIT_NAMES.get(int(graph.split[0, node]), ""))
    sources, targets = ends_of(graph)
    facts: list[dict] = [{}] * graph.n_edges if graph.edge_weights is None else [
        {"weight": float(value)} for value in graph.edge_weights]
    made.add_edges_from((names[a], names[b], of_edge)
                        for a, b, of_edge in zip(sources, targets, facts))
    return made


# -- PyG and DGL -----------------------------------------------------------------------------------
def from_pyg(data: Any) -> Graph:
    """A Data object: edge_index, x, y, masks, edge_weight (or edge_attr of one column)."""
    edges = getattr(data, "edge_index", None)
    if edges is None or getattr(edges, "ndim", 0) != 2 or len(edges) != 2:
        raise GraphError("the object has no edge_index of two rows: expected a homogeneous Data "
                         "of PyG")
    weights = getattr(data, "edge_weight", None)
    attributes = getattr(data, "edge_attr", None)
    if weights is None and attributes is not None and attributes.numel() == edges.shape[1]:
        weights = attributes
    n_nodes = int(data.num_nodes)
    return graph_of_edges(edges[0], edges[1], getattr(data, "x", None), getattr(data, "y", None),
                          split_of_masks({name: getattr(data, name, None) for name in MASKS},
                                         n_nodes), n_nodes=n_nodes, edge_weights=weights)


def _tensors(graph: Graph) -> tuple[Any, dict[str, Any]]:
    torch = _package("torch")
    labels = np.array(graph.labels, np.float32 if graph.multilabel else np.int64)
    return torch, {"x": torch.from_numpy(dense(graph.features)), "y": torch.from_numpy(labels),
                   **{name: torch.from_numpy(mask) for name, mask in masks_of(graph).items()}}


def to_pyg(graph: Graph):
    """A Data object with edge_index, x, y, masks and, if edges have weights, edge_weight."""
    torch, tensors = _tensors(graph)
    if graph.edge_weights is not None:
        tensors["edge_weight"] = torch.from_numpy(np.array(graph.edge_weights))
    edges = torch.from_numpy(np.stack(ends_of(graph)))
    return _package("torch_geometric.data").Data(edge_index=edges, num_nodes=graph.n_nodes,
                                                 **tensors)


def from_dgl(given: Any) -> Graph:
    """A homogeneous graph with feat, label and masks as node data, w or weight as edge data."""
    if not given.is_homogeneous:
        raise GraphError("a graph of several node or edge types: expected a homogeneous one, as "
                         "from dgl.to_homogeneous")
    nodes, n_nodes = given.ndata, int(given.num_nodes())

    def first(data, *names: str):
        return next((data[name] for name in names if name in data), None)

    sources, targets = given.edges()
    return graph_of_edges(sources, targets, first(nodes, "feat", "features", "x"),
                          first(nodes, "label", "labels", "y"),
                          split_of_masks({name: first(nodes, name) for name in MASKS}, n_nodes),
                          n_nodes=n_nodes, edge_weights=first(given.edata, *_WEIGHTS))


def to_dgl(graph: Graph):
    """A DGL graph with feat, label and masks and, if edges have weights, w."""
    dgl = _package("dgl")
    torch, tensors = _tensors(graph)
    made = dgl.graph(tuple(map(torch.from_numpy, ends_of(graph))), num_nodes=graph.n_nodes)
    for name, value in tensors.items():
        made.ndata[{"x": "feat", "y": "label"}.get(name, name)] = value
    if graph.edge_weights is not None:
        made.edata["w"] = torch.from_numpy(np.array(graph.edge_weights))
    return made
