"""What the files of every kind hold: the one list of their attributes and arrays. data/FORMAT.md
explains them.

A shape is written in facts of the header ("n_nodes + 1") or in names of its own ("entries"), which
mean the same number wherever they stand; "*" is any number. `structure.py` compares a file with its
table before anything else is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hpcgcn.graph.relations import (
    graph_relations,
    no_relations,
    partition_relations,
    prediction_relations,
)


@dataclass(frozen=True)
class Attribute:
    """One value: 'int', 'float', 'bool', 'string', or a string of JSON that is an 'object' or a
    'list'."""

    type: str
    least: float | None = None
    required: bool = True
    most: float | None = None


@dataclass(frozen=True)
class Array:
    """A dataset. types: names of NumPy, or 'bytes' for strings of a fixed length; shape: None if
    any will do."""

    types: tuple[str, ...]
    shape: tuple[str, ...] | None
    required: bool = True


@dataclass(frozen=True)
class Group:
    """A group, with members of these names; `others` is what members of any other name are, None if
    there are none."""

    # a tuple holds alternatives
    members: Mapping[str, Array | Group | tuple] = field(default_factory=dict)
    attributes: dict[str, Attribute] = field(default_factory=dict)
    others: Array | Group | tuple | None = None
    required: bool = True
    # yields what in a file of the right structure does not agree
    relations: Callable = no_relations


_NUMBERS = ("float16", "float32", "float64", "int8", "uint8", "int16", "uint16", "int32", "uint32",
            "int64", "uint64")
_PARAMETERS = ("float32", "float64")
_COUNT = Attribute("int", 0, most=2**53)  # of epochs or steps: one more is a number, too
_NODE_NAMES = Array(("int64", "bytes"), ("n_nodes",), required=False)

_HEADER = {"format": Attribute("string"), "version": Attribute("int"), "uuid": Attribute("string"),
           "settings": Attribute("object"),
           "source": Attribute("string"), "creator": Attribute("string", required=False),
           "created": Attribute("string", required=False),
           "command": Attribute("string", required=False),
           "checksum": Attribute("string", required=False)}

_GRAPH_FACTS = {
    **_HEADER, "source_uuid": Attribute("string"), "n_nodes": Attribute("int", 1),
    "n_edges": Attribute("int", 0), "n_features": Attribute("int", 1),
    "n_classes": Attribute("int", 1), "n_splits": Attribute("int", 1),
    "n_parts": Attribute("int", 1), "directed": Attribute("bool"),
    # These repeat what the arrays tell.
    "multilabel": Attribute("bool"), "weighted": Attribute("bool", required=False),
    "sparse_features": Attribute("bool"),
    "feature_dtype": Attribute("string"), "split_counts": Attribute("list")}

_SPARSE = Group(
    {"indptr": Array(("int64",), ("n_nodes + 1",)), "indices": Array(("int32",), ("entries",)),
     "values": Array(("float32",), ("entries",), required=False)},
    {"n_columns": Attribute("int", 1)})

_GRAPH_ARRAYS: dict[str, Array | Group | tuple] = {
    "indptr": Array(("int64",), ("n_nodes + 1",)),
    "indices": Array(("int32", "int64"), ("n_edges",)),
    "edge_weights": Array(("float32",), ("n_edges",), required=False),
    "features": (Array(("float32", "float16"), ("n_nodes", "n_features")), _SPARSE),
    "labels": (Array(("int32",), ("n_nodes",)), Array(("uint8",), ("n_nodes", "n_classes"))),
    "split": Array(("uint8",), ("n_splits", "n_nodes")),
    "node_names": _NODE_NAMES,
    "extra": Array(("uint8",), ("bytes",), required=False)}

_IDS, _ONE = Array(("int64",), ("*",)), Array(("int64",), ("1",))
_EXCHANGE_STATE = Group({"ids": _IDS, "n_averaged": _ONE}, others=Array(_NUMBERS, None))
_CHUNK_HISTORY = Group({"ids": _IDS, "chunks": _IDS, "held": _ONE}, others=Array(_NUMBERS, None))

SCHEMAS = {
    "graph": Group(_GRAPH_ARRAYS, _GRAPH_FACTS, relations=graph_relations),
    "partition": Group({"offsets": Array(("int64",), ("n_parts + 1",)),
                        "original_ids": Array(("int64",), ("n_nodes",)),
                        "halo_offsets": Array(("int64",), ("n_parts + 1",), required=False),
                        "halo_cover": Array(("uint8",), ("halo_rows",), required=False),
                        **_GRAPH_ARRAYS},
                       _GRAPH_FACTS, relations=partition_relations),
    "model": Group({"parameters": Array(_PARAMETERS, ("n_parameters",)),
                    "m": Array(_PARAMETERS, ("n_parameters",)),
                    "v": Array(_PARAMETERS, ("n_parameters",)),
                    "rate_state": Array(("float64",), ("n_rates",)),
                    "best_parameters": Array(_PARAMETERS, ("n_parameters",), required=False),
                    "layout": Group(others=Array(("int64",), ("*",)))},
                   {**_HEADER, "epoch": _COUNT, "step": _COUNT,
                    "n_ranks": Attribute("int", 1), "multilabel": Attribute("bool", required=False),
                    "best_epoch": _COUNT,
                    "best_val": Attribute("float"), "best_test": Attribute("float")}),
    "exchange": Group({}, {**_HEADER, "epoch": _COUNT},
                      others=(_EXCHANGE_STATE, _CHUNK_HISTORY)),
    "predictions": Group({"classes": (Array(("int32",), ("n_nodes",), required=False),
                                      Array(("uint8",), ("n_nodes", "width"), required=False)),
                          "logits": Array(_PARAMETERS, ("n_nodes", "width"), required=False),
                          "embeddings": Array(_PARAMETERS, ("n_nodes", "width"), required=False),
                          "node_names": _NODE_NAMES},
                         {**_HEADER, "n_nodes": Attribute("int", 1),
                          "source_uuid": Attribute("string", required=False),
                          "run_uuid": Attribute("string", required=False)},
                         relations=prediction_relations)}
