"""Notices a run that does not train: its loss stays where guessing by the labels' frequencies would be."""

from __future__ import annotations

from collections import deque

import numpy as np

from hpcgcn.graph.data import TRAIN
from hpcgcn.nn.models import models_where

PATIENCE = 50                        # epochs
NEAR = 0.98                          # of the loss of guessing


def chance_loss(comm, labels, n_classes: int) -> float:
    """The loss of the best guess that knows only how often each label occurs among training nodes. Collective."""
    host = labels.host
    used = labels.split == TRAIN
    if host.ndim == 1:
        used &= host >= 0
        counts = comm.allreduce(np.bincount(host[used], minlength=n_classes).astype(np.int64))
        shares = counts[counts > 0] / max(counts.sum(), 1)
        return float(-(shares * np.log(shares)).sum())
    n, positive = comm.allreduce(int(used.sum())), comm.allreduce(host[used].sum(axis=0, dtype=np.int64))
    p = positive / max(n, 1)
    certain = (p == 0) | (p == 1)
    q = np.where(certain, 0.5, p)
    return float(np.where(certain, 0.0, -(q * np.log(q) + (1 - q) * np.log(1 - q))).sum())


class ChanceWatch:
    """Keeps the last losses. A single class has no chance to beat: then nothing is said."""

    def __init__(self, chance: float):
        self.chance, self.losses, self.said = chance, deque(maxlen=PATIENCE), False

    @property
    def stuck(self) -> bool:
        """Has the loss been at chance for as long as there is patience?"""
        return self.chance > 0 and len(self.losses) == PATIENCE and min(self.losses) > NEAR * self.chance

    def observe(self, loss: float) -> str:
        """Take in an epoch's loss; returns a warning, once."""
        self.losses.append(loss)
        if self.said or not self.stuck:
            return ""
        self.said = True
        return (f"the loss has been at chance for {PATIENCE} epochs: {np.mean(self.losses):.3f}, and guessing by the labels' "
                f"frequencies has {self.chance:.3f}; this does not train")


def remedy(config) -> str:
    """What may help against a loss at chance."""
    if config.parallel == "layers" and config.history != "none":
        return ("chunks may see too much that is out of date: try a shorter --history-hold, more --ways (gnnpipe-hybrid), "
                "fewer --stages or --chunks; --history none is exact and tells whether history is the cause")
    deep = " or ".join(models_where("for_many_layers"))
    return f"try another --lr, fewer --layers, or a model for many layers (--model {deep})"
