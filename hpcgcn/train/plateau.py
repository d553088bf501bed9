"""Notices a run that does not train: its loss stays where guessing by label frequencies would
be."""

from __future__ import annotations

from collections import deque

import numpy as np

from hpcgcn.graph.data import TRAIN, Part
from hpcgcn.nn.models import models_where

PATIENCE = 50                        # epochs
NEAR = 0.98                          # of the loss of guessing; and of the loss of earlier epochs
SAMPLED_ROWS = 4096                  # per rank, from which the scale of features is told
UNEVEN = 100.0                       # times the typical deviation at which a feature dominates


def chance_loss(comm, labels, n_classes: int) -> float:
    """The loss of the best guess that knows only how often each label occurs. Collective."""
    host = labels.host
    used = labels.split == TRAIN
    if host.ndim == 1:
        used &= host >= 0
        counts = comm.allreduce(np.bincount(host[used], minlength=n_classes).astype(np.int64))
        if labels.class_weights is not None:
            counts = counts * labels.class_weights
        shares = counts[counts > 0] / (counts.sum() or 1)
        return float(-(shares * np.log(shares)).sum())
    n = comm.allreduce(int(used.sum()))
    positive = comm.allreduce(host[used].sum(axis=0, dtype=np.int64))
    p = positive / max(n, 1)
    certain = (p == 0) | (p == 1)
    q = np.where(certain, 0.5, p)
    entropies = -(q * np.log(q) + (1 - q) * np.log(1 - q))
    return float(np.where(certain, 0.0, entropies).sum())


def features_are_uneven(comm, part: Part) -> bool:
    """Do some features vary so much more than others that they drown them? Collective."""
    from mpi4py import MPI
    deviations = np.zeros(part.n_features)
    if isinstance(part.features, np.ndarray) and len(part.features):
        sample = part.features[::len(part.features) // SAMPLED_ROWS + 1].astype(np.float64)
        deviations = sample.std(axis=0)
    comm.Allreduce(MPI.IN_PLACE, deviations, MPI.MAX)
    varying = deviations[deviations > 0]
    return len(varying) > 0 and bool(varying.max() > UNEVEN * min(np.median(varying), 1.0))


class ChanceWatch:
    """Keeps the last losses. A single class has no chance to beat: then nothing is said."""

    def __init__(self, chance: float):
        self.chance, self.warned = chance, False
        self.losses: deque[float] = deque(maxlen=PATIENCE)

    @property
    def stuck(self) -> bool:
        """Has the loss been at chance or above for PATIENCE epochs, and is it falling no more?"""
        if self.chance <= 0 or len(self.losses) < PATIENCE:
            return False
        losses = np.array(self.losses)
        earlier, recent = np.median(losses[:PATIENCE // 2]), np.median(losses[PATIENCE // 2:])
        return bool(losses.min() > NEAR * self.chance and recent > NEAR * earlier)

    def observe(self, loss: float) -> str:
        """Take in an epoch's loss; returns a warning, once."""
        self.losses.append(loss)
        if self.warned or not self.stuck:
            return ""
        self.warned = True
        return (f"the loss has been at chance for {PATIENCE} epochs: it is {loss:.3f}, and "
                f"guessing "
                f"by the labels' frequencies has {self.chance:.3f}; this does not train")


def remedy(strategy, uneven: bool = False) -> str:
    """What may help against a loss at chance; uneven: some features drown the others."""
    if uneven and not strategy.remedy():
        return ("features are of very different scale: import the graph with --normalise-features "
                "standard")
    deep = " or ".join(models_where("for_many_layers"))
    return strategy.remedy() or (f"try another --lr, fewer --layers, or a model for many layers "
                                 f"(--model {deep})")
