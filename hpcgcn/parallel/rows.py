"""What the rows of a rank bring along: labels and splits, and the input of the first layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, SupportsFloat

import numpy as np

from hpcgcn.errors import ConfigError
from hpcgcn.graph.data import TRAIN, Part, SparseRows
from hpcgcn.nn.models import Inputs
from hpcgcn.parallel.class_weights import weights_of_classes


@dataclass
class Labels:
    """Labels and splits of the local rows, on the backend and on the host."""

    host: np.ndarray                 # (n_owned,) int32 or (n_owned, n_classes) uint8
    split: np.ndarray                # (n_owned,) uint8
    train: Any                       # backend: labels with -1 outside the train split, or targets
    row_used: Any                    # backend, multi-label: 1 for train rows
    n_train: int                     # over all ranks
    total_weight: float = 1.0        # of their classes, over all ranks: n_train without weights
    # (n_classes,) in float64 on the host, and on the backend; None: all are 1
    class_weights: np.ndarray | None = None
    class_weights_there: Any = None

    @property
    def multilabel(self) -> bool:
        """May a node have several classes?"""
        return self.host.ndim == 2

    def loss(self, backend, logits, dlogits, rows: slice = slice(None)) -> SupportsFloat:
        """The sum of the training rows' losses, each times the weight of its class; dlogits[rows] =
        its gradient over the sum of these weights over all ranks."""
        scale = 1.0 / (self.total_weight or 1.0)
        if self.multilabel:
            return backend.sigmoid_cross_entropy(logits[rows], self.train[rows],
                                                 self.row_used[rows], scale, dlogits[rows])
        return backend.softmax_cross_entropy(logits[rows], self.train[rows], scale, dlogits[rows],
                                             self.class_weights_there)


def counts_in_loss(part: Part) -> np.ndarray:
    """Which rows of a part are in the loss: labelled training nodes, (n_owned,) bool."""
    used = part.split == TRAIN
    return used & (part.labels >= 0) if part.labels.ndim == 1 else used


def local_labels(comm, backend, part: Part, order: np.ndarray,
                 class_weights: str = "none") -> Labels:
    """The labels of a part's rows in the order of the local graph. Collective."""
    host, split, used = part.labels[order], part.split[order], counts_in_loss(part)[order]
    if host.ndim == 1:
        train = np.where(used, host, -1).astype(np.int32)
    else:
        train = np.ascontiguousarray(host, np.uint8)
    n_train = comm.allreduce(int(used.sum()))
    labels = Labels(host, split, backend.from_host(train), backend.from_host(used.astype(np.uint8)),
                    n_train, float(n_train))
    if class_weights != "none":
        _set_weights(labels, comm, backend, class_weights, part.n_classes, used)
    return labels


def _set_weights(labels: Labels, comm, backend, class_weights: str, n_classes: int,
                 used: np.ndarray):
    """Weights by class; their sum over training nodes is the same on any number of ranks."""
    if labels.multilabel:
        raise ConfigError("class_weights is for graphs with one class per node, and this one has "
                          "several: leave it at none")
    counts = comm.allreduce(np.bincount(labels.host[used], minlength=n_classes))
    weights = weights_of_classes(class_weights, counts)
    if weights is not None:
        weights = weights.astype(backend.dtype)
        labels.class_weights_there = backend.from_host(weights)
        labels.class_weights = weights.astype(np.float64)
        labels.total_weight = float((labels.class_weights * counts).sum())


def local_inputs(backend, part: Part, order: np.ndarray, ids, aggregate=None) -> Inputs:
    """The features of a part's rows. aggregate(rows): A @ rows, if that is to be done once."""
    if isinstance(part.features, SparseRows) and aggregate is None:
        return Inputs(ids, sparse=part.features.take(order))
    dense = part.features.to_dense() if isinstance(part.features, SparseRows) else part.features
    rows = backend.zeros((len(order), dense.shape[1]))
    backend.copy(np.ascontiguousarray(dense[order], backend.dtype), rows)
    return Inputs(ids, dense=rows, aggregated=aggregate(rows) if aggregate else None)
