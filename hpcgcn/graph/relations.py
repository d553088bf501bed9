"""What must agree within a file whose attributes and arrays are of the right types and shapes; no
array is read."""

from __future__ import annotations

from collections.abc import Iterator

import h5py

from hpcgcn.graph.csr import index_dtype

# A header may declare more classes or columns than the arrays use, but not so many that models of
# them fill the memory.
MOST_UNUSED_CLASSES = 1 << 12
MOST_UNUSED_COLUMNS = 1 << 16


def no_relations(file: h5py.File, facts: dict) -> Iterator[str]:
    """For files without any."""
    yield from ()


def graph_relations(file: h5py.File, facts: dict) -> Iterator[str]:
    """Facts of a graph's or partition's header against its arrays."""
    features, labels = file["features"], file["labels"]
    sparse = isinstance(features, h5py.Group)
    held = {"multilabel": labels.ndim == 2, "sparse_features": sparse,
            "feature_dtype": "float32" if sparse else features.dtype.name,
            "n_features": int(features.attrs["n_columns"]) if sparse else features.shape[1]}
    if facts["version"] > 1 and "weighted" not in facts:
        yield "the attribute weighted is missing, expected a boolean"
    if facts.get("weighted", False) != ("edge_weights" in file):
        yield (f"the header says weighted = {facts.get('weighted', False)}, but /edge_weights is "
               f"{'there' if 'edge_weights' in file else 'missing'}")
    for name, value in held.items():
        if facts[name] != value:
            yield f"the header says {name} = {facts[name]}, the arrays hold {value}"
    if file["indices"].dtype != index_dtype(facts["n_nodes"]):
        yield (f"/indices is {file['indices'].dtype}, expected "
               f"{index_dtype(facts['n_nodes']).__name__} for {facts['n_nodes']} nodes")
    if facts["n_classes"] > max(facts["n_nodes"], MOST_UNUSED_CLASSES):
        yield (f"the header says n_classes = {facts['n_classes']}, which is more than there are "
               "nodes")
    if sparse and facts["n_features"] > max(len(features["indices"]), MOST_UNUSED_COLUMNS):
        yield (f"the header says n_features = {facts['n_features']}, which is more than there "
               "are entries in /features/indices")


def partition_relations(file: h5py.File, facts: dict) -> Iterator[str]:
    """The same of a partition's, whose covers are there whole or not at all."""
    yield from graph_relations(file, facts)
    for name, other in (("halo_cover", "halo_offsets"), ("halo_offsets", "halo_cover")):
        if name in file and other not in file:
            yield f"/{name} is there, but /{other} is missing"


def prediction_relations(file: h5py.File, facts: dict) -> Iterator[str]:
    """A predictions file holds one array of them, and says which."""
    held = [name for name in ("classes", "logits", "embeddings") if name in file]
    if held != [facts["settings"].get("what")]:
        yield (f"it holds {' and '.join(held) or 'no predictions'}, but its settings say "
               f"{facts['settings'].get('what')!r}")
