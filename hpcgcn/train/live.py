"""live.json in a run's folder: how far it is and how busy its ranks are, for `hpcgcn watch`.

Rank 0 writes it anew, at most once per second. It is no record: nothing is synced to the disk, and
a run that cannot write it goes on.
"""

from __future__ import annotations

import contextlib
import json
import os
import time

import numpy as np

from hpcgcn.train.accounting import IDLE_OR_MOVING, SCALARS, EpochLedger
from hpcgcn.train.folder import LIVE, RunFolder

SECONDS = 1.0                        # between two writes


class LiveFile:
    """Written while a run trains."""

    def __init__(self, folder: RunFolder, n_epochs: int, ledger: EpochLedger):
        self.path, self.n_epochs, self.ledger = os.path.join(folder.path, LIVE), n_epochs, ledger
        self._before, self._written = ledger.totals.copy(), float("-inf")

    def update(self, epoch: int):
        """An epoch is done and counted; on rank 0."""
        now = time.monotonic()
        if now - self._written < SECONDS and epoch < self.n_epochs:
            return
        shares = self._shares(self.ledger.totals - self._before)
        self._before, self._written = self.ledger.totals.copy(), now
        content = {"epoch": epoch, "epochs": self.n_epochs, "written_at": time.time(),
                   "ranks": shares}
        temporary = self.path + ".part"
        with contextlib.suppress(OSError):
            # A link of this name is somebody else's.
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW,
                                 0o666)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(content, file)
            os.replace(temporary, self.path)

    @staticmethod
    def _shares(counted: np.ndarray) -> list[dict[str, float]]:
        """Of each rank's time since the last write: waiting, moving data, busy."""
        ranks = []
        for row in counted[:, :len(SCALARS)]:
            of = dict(zip(SCALARS, row.tolist()))
            whole = of["seconds"] or 1.0
            waits = (of["wait_seconds"] + of["allreduce_seconds"]) / whole
            moves = sum(of[name] for name in IDLE_OR_MOVING) / whole - waits
            ranks.append({"waits": waits, "moves": moves, "busy": max(1.0 - waits - moves, 0.0)})
        return ranks
