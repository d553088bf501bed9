"""What a launch asks of memory, counted as the hardware does.

A request is one access of a warp. Global memory answers in sectors of 32 bytes; a warp whose lanes
lie side by side needs as many sectors as its bytes fill. Shared memory has 32 banks of 4 bytes: a
request takes as many wavefronts as the words of its busiest bank, and a vector of 8 or 16 bytes is
served for half or a quarter of the lanes at a time.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

SECTOR, BANKS, WARP = 32, 32, 32


@dataclass
class Traffic:
    """Of one kernel; `sectors` of global, `wavefronts` of shared memory."""

    launches: int = 0
    load_requests: int = 0
    load_sectors: int = 0
    load_bytes: int = 0
    store_requests: int = 0
    store_sectors: int = 0
    store_bytes: int = 0
    shared_requests: int = 0
    shared_wavefronts: int = 0
    generic_requests: int = 0
    loaded: set[int] = field(default_factory=set)    # numbers of all sectors that were read
    stored: set[int] = field(default_factory=set)


class Counter:
    """Traffic by the name of the kernel."""

    def __init__(self):
        self.kernels: dict[str, Traffic] = defaultdict(Traffic)
        self._current = Traffic()

    def launch(self, name: str):
        self._current = self.kernels[name]
        self._current.launches += 1

    def note(self, space: str, generic: bool, address, size: int, lanes, writes: bool):
        """One access of some threads; lanes: their numbers."""
        traffic, warp = self._current, lanes // WARP
        requests = len(np.unique(warp))
        traffic.generic_requests += requests if generic else 0
        if space == "shared":
            traffic.shared_requests += requests
            traffic.shared_wavefronts += wavefronts(address, size, lanes)
            return
        first = address.astype(np.int64) // SECTOR               # an aligned access fills one
        sectors = len(np.unique(np.stack([warp, first]), axis=1).T)
        (traffic.stored if writes else traffic.loaded).update(np.unique(first).tolist())
        kind = "store" if writes else "load"
        for what, amount in (("requests", requests), ("sectors", sectors),
                             ("bytes", len(lanes) * size)):
            name = f"{kind}_{what}"
            setattr(traffic, name, getattr(traffic, name) + amount)


def wavefronts(address, size: int, lanes) -> int:
    """Of one access to shared memory by some threads."""
    words = max(1, size // 4)
    lanes_at_once = WARP // words
    group = lanes // WARP * words + lanes % WARP // lanes_at_once
    word = (address.astype(np.int64)[:, None] // 4 + np.arange(words)).ravel()
    pairs = np.unique(np.stack([np.repeat(group, words), word]), axis=1)     # equal words: one
    of_group = np.unique(pairs[0], return_inverse=True)[1]
    per_bank = np.zeros((of_group.max() + 1, BANKS), np.int64)
    np.add.at(per_bank, (of_group, pairs[1] % BANKS), 1)
    return int(per_bank.max(axis=1).sum())
