"""Which nodes are for training, validation and test: as given, at random by ratio, or a number from
every class."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hpcgcn import philox
from hpcgcn.errors import ConfigError, GraphError
from hpcgcn.graph.data import TEST, TRAIN, VAL

FORMS = "given, public, none, random 60/20/20 (shares), or per-class 20/30/rest (nodes)"
_DEFAULTS = {"random": "60/20/20", "per-class": "20/30/rest"}


@dataclass(frozen=True)
class SplitRule:
    """A way to split: kind, and three numbers (None: all that are left)."""

    kind: str
    amounts: tuple[float | None, ...] = ()


def parse_split(words: str | list[str]) -> SplitRule:
    """A rule from what a user typed: `per-class 20/30/rest` or `random:0.6/0.2/0.2`."""
    given = " ".join([words] if isinstance(words, str) else words).replace(":", " ").split()
    kind, rest = (given[0], given[1:]) if given else ("", [])
    if kind in ("auto", "given", "public", "none") and not rest:
        return SplitRule(kind)
    if kind not in _DEFAULTS or len(rest) > 1:
        raise ConfigError(f"--split {' '.join(given)}: expected {FORMS}")
    text = rest[0] if rest else _DEFAULTS[kind]
    amounts = tuple(_amount(kind, part) for part in text.split("/"))
    if len(amounts) != 3 or amounts[0] in (None, 0) or amounts.count(None) > 1:
        raise ConfigError(f"--split {kind} {text}: expected three numbers for train/val/test, "
                          f"such as {_DEFAULTS[kind]}")
    return SplitRule(kind, amounts)


def _amount(kind: str, part: str) -> float | None:
    if part == "rest":
        return None
    try:
        number = float(part)
    except ValueError:
        number = -1.0
    if not 0 <= number < math.inf or (kind == "per-class" and number != int(number)):
        raise ConfigError(f"--split {kind}: {part!r} is not an amount; expected a number or 'rest'")
    return number


def make_splits(rule: SplitRule, labels: np.ndarray, seed: int, count: int) -> np.ndarray:
    """(count, n) codes; split k is drawn with the seed `seed + k`."""
    labelled = np.ones(len(labels), bool) if labels.ndim == 2 else labels >= 0
    if not labelled.any():
        raise GraphError(f"--split {rule.kind}: no node has a label; expected labelled nodes, or "
                         "--split none")
    if rule.kind == "per-class" and labels.ndim == 2:
        raise GraphError("--split per-class: the graph is multi-label, so classes overlap; "
                         "expected --split random")
    make = _random_split if rule.kind == "random" else _per_class_split
    return np.stack([make(rule.amounts, labels, labelled, seed + k) for k in range(count)])


def _random_split(amounts, labels, labelled, seed: int) -> np.ndarray:
    """Shares of the labelled nodes; numbers that add up to more than 1 are percentages or
    weights."""
    known = sum(amount for amount in amounts if amount is not None)
    scale = 1.0 if known <= 1 else 100.0 if known <= 100 else known
    nodes = _shuffled(np.flatnonzero(labelled), seed)
    shares = [(1 - known / scale) if amount is None else amount / scale for amount in amounts]
    stops = np.round(np.cumsum(shares) * len(nodes)).astype(int)
    split = np.zeros(len(labelled), np.uint8)
    for code, start, stop in zip((TRAIN, VAL, TEST), (0, *stops), stops):
        split[nodes[start:stop]] = code
    return split


def _per_class_split(amounts, labels, labelled, seed: int) -> np.ndarray:
    """The same number of every class; `rest` takes what is left, and a class with too few nodes
    gives what it has."""
    split = np.zeros(len(labels), np.uint8)
    nodes = _shuffled(np.flatnonzero(labelled), seed)
    for label in np.unique(labels[nodes]):
        members = nodes[labels[nodes] == label]
        known = sum(int(amount) for amount in amounts if amount is not None)
        at = 0
        for code, amount in zip((TRAIN, VAL, TEST), amounts):
            size = max(len(members) - known, 0) if amount is None else int(amount)
            split[members[at:at + size]] = code
            at += size
    return split


def _shuffled(nodes: np.ndarray, seed: int) -> np.ndarray:
    return nodes[philox.permutation(philox.key(seed, 0, 0, philox.ORDER), len(nodes))]
