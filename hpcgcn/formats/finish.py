"""From a draft to a graph: edges into sorted rows, splits, features, and the choices of the
user."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from hpcgcn.errors import ConfigError, FileError, GraphError
from hpcgcn.formats.draft import Draft
from hpcgcn.formats.edges import RUN_KEYS, EdgeSpool
from hpcgcn.formats.features import normalise
from hpcgcn.formats.splits import SplitRule, make_splits
from hpcgcn.graph.checks import edge_problems, validate_graph
from hpcgcn.graph.components import largest_component
from hpcgcn.graph.csr import entry_positions, index_dtype, take_indptr
from hpcgcn.graph.data import TRAIN, Graph, SparseRows
from hpcgcn.graph.made_features import make_features

_DENSE_SHARE = 0.2         # of sparse features
_NODES_PER_EDGE = 100      # more nodes per edge than this: an error in the ids
# as many as this may be announced without edges, features or labels that bear it out
_PLAIN_NODES = 10_000_000


@dataclass
class Choices:
    """What the user asked for beyond what is in the files."""

    split: SplitRule = field(default_factory=lambda: SplitRule("auto"))
    n_splits: int = 1
    seed: int = 0
    undirected: bool = False
    largest_component: bool = False
    drop_duplicates: bool = False
    normalise_features: str | None = None
    make_features: str = "degree"
    edge_weights: bool = True          # keep weights of edges, if there are any
    run_keys: int = RUN_KEYS


@contextlib.contextmanager
def finished(draft: Draft, choices: Choices,
             folder: str | os.PathLike = ".") -> Iterator[tuple[Graph, list[str]]]:
    """The graph, checked, and notes for the user; temporary files are in `folder` and go when the
    block ends."""
    try:
        with tempfile.TemporaryDirectory(prefix=".import-", dir=folder) as temporary:
            yield _graph(draft, choices, temporary)
    except OSError as error:
        raise FileError(f"cannot write in {folder}: {error.strerror or error}; check free space "
                        "and permissions") from error


def _graph(draft: Draft, choices: Choices, temporary: str) -> tuple[Graph, list[str]]:
    notes: list[str] = []
    given = _given_split(draft, choices)
    indptr, indices, weights = _csr(draft, choices, temporary, notes)
    n_nodes = len(indptr) - 1
    directed = (not (draft.pairs or choices.undirected)
                and _one_way(indptr, indices, n_nodes, weights))
    labels, n_classes = _labels(draft, n_nodes)
    extra = draft.extra
    if draft.features is None:
        notes.append("no features in the files: made from the graph (--make-features "
                     f"{choices.make_features})")
        extra = {**extra, "made_features": choices.make_features}
    features = make_features(choices.make_features,
                             indptr) if draft.features is None else _stored(draft.features, notes)
    graph = Graph(indptr, indices, features, labels,
                  np.zeros((1, n_nodes), np.uint8) if given is None else given,
                  n_classes, directed, draft.node_names, draft.source, extra,
                  edge_weights=weights)
    if choices.largest_component:
        graph = _within(graph, largest_component(indptr, indices),
                        choices.make_features if draft.features is None else "", notes)
    if given is None:
        graph.split = _drawn_split(graph, choices, notes)
    if choices.normalise_features:
        graph.features = normalise(choices.normalise_features, graph.features,
                                   graph.split[0] == TRAIN)
    _check(draft.nodes_path or draft.path, graph)
    return graph, draft.notes + notes


def _check(path: str, graph: Graph):
    try:
        validate_graph(graph, need_train=False)
    except GraphError as error:
        raise GraphError(f"{path}: {error}; expected finite features, and labels and splits that "
                         "fit the nodes") from None


def _csr(draft: Draft, choices: Choices, temporary: str,
         notes: list[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    weighted = draft.weighted and choices.edge_weights
    spool = EdgeSpool(temporary, draft.pairs or choices.undirected, choices.run_keys, weighted)
    try:
        for sources, targets, *weights in draft.edges():
            spool.add(sources, targets, weights[0] if weighted else None)
        n_nodes = _n_nodes(draft, spool)
        indptr, indices, edge_weights, n_repeated = spool.build(n_nodes)
    except GraphError as error:
        named = str(error).startswith(draft.path)
        raise GraphError(f"{error}" if named else f"{draft.path}: {error}") from None
    if n_repeated and spool.repeated and draft.strict and not choices.drop_duplicates:
        source, target = spool.repeated
        places = _lines_of(draft,
                           lambda sources, targets: (sources == source) & (targets == target), 2)
        raise GraphError(f"{draft.path}{places}: {n_repeated:,} "
                         f"edge{'s are' if n_repeated > 1 else ' is'} listed more than once; "
                         "expected every edge once, or --drop-duplicates to keep one of each")
    if n_repeated:
        notes.append(f"{n_repeated:,} repeated edges dropped")
    if spool.n_loops:
        notes.append(f"{spool.n_loops:,} self loops dropped (the models add theirs)")
    if edge_weights is not None and (edge_weights == 1).all():
        edge_weights = None
    if draft.weighted and not weighted:
        notes.append("edge weights are not used (--no-edge-weights)")
    return indptr, indices, edge_weights


def _n_nodes(draft: Draft, spool: EdgeSpool) -> int:
    """The number of nodes, if the edges and what else is in the files bear it out: a slip must not
    fill the memory."""
    if draft.n_nodes is None and spool.largest + 1 > _NODES_PER_EDGE * spool.n_edges + 1000:
        place = _lines_of(draft, lambda sources, targets: (sources == spool.largest)
                          | (targets == spool.largest), 1)
        raise GraphError(f"{draft.path}{place}: the largest id is {spool.largest}, but there are "
                         f"only {spool.n_edges} edges; expected ids from 0 without large gaps, "
                         "or --ids name to number the nodes anew")
    n_nodes = spool.largest + 1 if draft.n_nodes is None else draft.n_nodes
    if spool.largest >= n_nodes:
        raise GraphError(f"{draft.path}: there is an edge to node {spool.largest}; expected ids "
                         f"in 0..{n_nodes - 1}")
    if n_nodes == 0:
        raise GraphError(f"{draft.path}: there are no nodes; expected at least one edge or a "
                         "node table")
    if (draft.features is None and draft.labels is None
        and n_nodes > max(_PLAIN_NODES, _NODES_PER_EDGE * spool.n_edges)):
        raise GraphError(f"{draft.path}: {n_nodes:,} nodes are announced, but there are only "
                         f"{spool.n_edges:,} edges; expected more edges, or features or labels "
                         f"of these nodes, or at most {_PLAIN_NODES:,} nodes")
    return n_nodes


def _lines_of(draft: Draft, test, count: int) -> str:
    """The first lines whose edges pass a test, in words; nothing if the files have no lines."""
    numbers: list[int] = []
    for lines, sources, targets in draft.lines() if draft.lines else ():
        numbers += lines[test(sources, targets)].tolist()
        if len(numbers) >= count:
            break
    return ", line " + " and ".join(map(str, numbers[:count])) if numbers else ""


def _stored(features, notes: list[str]):
    """Sparse features that are hardly sparse take less time, and hardly more space, as dense
    ones."""
    if (not isinstance(features, SparseRows)
        or len(features.indices) <= _DENSE_SHARE * features.shape[0] * features.shape[1]):
        return features
    notes.append(f"more than {100 * _DENSE_SHARE:.0f}% of the sparse features are not zero: "
                 "stored dense")
    return features.to_dense()


def _one_way(indptr: np.ndarray, indices: np.ndarray, n_nodes: int,
             weights: np.ndarray | None) -> bool:
    """Is any edge there in one direction only, or of another weight the other way?"""
    return next(edge_problems(indptr, indices, n_nodes, symmetric=True, weights=weights),
                None) is not None


def _labels(draft: Draft, n_nodes: int) -> tuple[np.ndarray, int]:
    if draft.labels is None:
        return np.full(n_nodes, -1, np.int32), draft.n_classes or 1
    labels = draft.labels
    if labels.ndim == 2:
        return labels, labels.shape[1]
    return labels, draft.n_classes or int(labels.max(initial=0)) + 1


def _given_split(draft: Draft, choices: Choices) -> np.ndarray | None:
    """The split of the files if it is asked for; None if one is to be drawn, or none at all."""
    kind, path = choices.split.kind, draft.nodes_path or draft.path
    if kind in ("given", "public") and draft.split is None:
        raise GraphError(f"{path}: --split {kind}, but there is no split in the files; expected "
                         "--split random 60/20/20 or --split per-class 20/30/rest")
    taken = draft.split is not None and kind in ("auto", "given", "public")
    if choices.n_splits > 1 and (taken or kind == "none"):
        raise ConfigError(f"--splits {choices.n_splits}, but "
                          f"{f'the split of {path} is taken' if taken else '--split none'}; "
                          "expected --split random or --split per-class with it, or no --splits")
    return (draft.split() if callable(draft.split) else draft.split) if taken else None


def _drawn_split(graph: Graph, choices: Choices, notes: list[str]) -> np.ndarray:
    rule = choices.split
    unlabelled = not graph.multilabel and not (graph.labels >= 0).any()
    if rule.kind == "none" or (rule.kind == "auto" and unlabelled):
        return np.zeros((1, graph.n_nodes), np.uint8)
    if rule.kind == "auto":
        notes.append(f"no split in the files: drawn at random, 60/20/20, seed {choices.seed} "
                     "(--split)")
        rule = SplitRule("random", (60, 20, 20))
    return make_splits(rule, graph.labels, choices.seed, choices.n_splits)


def _within(graph: Graph, nodes: np.ndarray, made: str, notes: list[str]) -> Graph:
    """The graph of some nodes (sorted; a whole component), numbered anew; names keep the ids that
    they had."""
    if len(nodes) == graph.n_nodes:
        return graph
    notes.append(f"largest component: {len(nodes):,} of {graph.n_nodes:,} nodes")
    number = np.full(graph.n_nodes, -1, np.int64)
    number[nodes] = np.arange(len(nodes))
    taken_indptr = take_indptr(graph.indptr, nodes)
    positions = entry_positions(graph.indptr, nodes, taken_indptr)
    indices = number[graph.indices[positions]].astype(index_dtype(len(nodes)))
    features = (make_features(made, taken_indptr) if made else graph.features.take(nodes)
                if isinstance(graph.features, SparseRows) else graph.features[nodes])
    return replace(graph, indptr=taken_indptr, indices=indices, features=features,
                   edge_weights=None if graph.edge_weights is None
                   else graph.edge_weights[positions],
                   labels=graph.labels[nodes], split=graph.split[:, nodes],
                   node_names=nodes if graph.node_names is None else graph.node_names[nodes])
