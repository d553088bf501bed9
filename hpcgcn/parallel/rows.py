"""What the rows of a rank bring along: labels and splits, and the input of the first layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, SupportsFloat

import numpy as np

from hpcgcn.graph.data import TRAIN, Part, SparseRows
from hpcgcn.nn.models import Inputs


@dataclass
class Labels:
    """Labels and splits of the local rows, on the backend and on the host."""

    host: np.ndarray                 # (n_owned,) int32 or (n_owned, n_classes) uint8
    split: np.ndarray                # (n_owned,) uint8
    train: Any                       # backend: labels with -1 outside the train split, or targets
    row_used: Any                    # backend, multi-label: 1 for train rows
    n_train: int                     # over all ranks

    @property
    def multilabel(self) -> bool:
        """May a node have several classes?"""
        return self.host.ndim == 2

    def loss(self, backend, logits, dlogits, rows: slice = slice(None)) -> SupportsFloat:
        """The sum of the training rows' losses; dlogits[rows] = its gradient over the global
        count."""
        scale = 1.0 / max(self.n_train, 1)
        if self.multilabel:
            return backend.sigmoid_cross_entropy(logits[rows], self.train[rows],
                                                 self.row_used[rows], scale, dlogits[rows])
        return backend.softmax_cross_entropy(logits[rows], self.train[rows], scale, dlogits[rows])


def counts_in_loss(part: Part) -> np.ndarray:
    """Which rows of a part are in the loss: labelled training nodes, (n_owned,) bool."""
    used = part.split == TRAIN
    return used & (part.labels >= 0) if part.labels.ndim == 1 else used


def local_labels(comm, backend, part: Part, order: np.ndarray) -> Labels:
    """The labels of a part's rows in the order of the local graph. Collective."""
    host, split, used = part.labels[order], part.split[order], counts_in_loss(part)[order]
    if host.ndim == 1:
        train = np.where(used, host, -1).astype(np.int32)
    else:
        train = np.ascontiguousarray(host, np.uint8)
    n_train = comm.allreduce(int(used.sum()))
    return Labels(host, split, backend.from_host(train), backend.from_host(used.astype(np.uint8)),
                  n_train)


def local_inputs(backend, part: Part, order: np.ndarray, ids, aggregate=None) -> Inputs:
    """The features of a part's rows. aggregate(rows): A @ rows, if that is to be done once."""
    if isinstance(part.features, SparseRows) and aggregate is None:
        return Inputs(ids, sparse=part.features.take(order))
    dense = part.features.to_dense() if isinstance(part.features, SparseRows) else part.features
    rows = backend.zeros((len(order), dense.shape[1]))
    backend.copy(np.ascontiguousarray(dense[order], backend.dtype), rows)
    return Inputs(ids, dense=rows, aggregated=aggregate(rows) if aggregate else None)
