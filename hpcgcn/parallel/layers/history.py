"""What chunks see of chunks that are not there yet: a snapshot of each hop's input, held for some
epochs."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpcgcn.parallel.layers.matrices import ChunkedGraph


class History:
    """The snapshots of a stage's hops; and last epoch's gradients where they are used.

    Checkpointed like an exchange.
    """

    def __init__(self, graph: ChunkedGraph, hold: int, stale_gradients: bool):
        self.graph, self.backend, self.hold, self.stale_gradients = (graph, graph.backend, hold,
                                                                     stale_gradients)
        # Backend arrays by name: of this epoch, of the snapshots, of last epoch's gradients.
        self.current: dict[str, Any] = {}
        self.snapshot: dict[str, Any] = {}
        self.gradients: dict[str, Any] = {}
        self.held = -1  # the epoch whose rows the snapshots hold; -1: none, they are zero
        self.anew = False  # a run was resumed without its snapshots: an exact epoch makes new ones

    def add(self, hop, halo):
        """A hop, and the rows that it reads on other partitions (or None)."""
        for name, array in (("owned", hop.source.value), ("halo", halo)):
            if array is not None:
                self.current[f"{name}_{hop.number}"] = array
                self.snapshot[f"{name}_{hop.number}"] = self.backend.zeros(array.shape)
        if hop.source.wants_gradient:
            self.gradients[f"gradients_{hop.number}"] = hop.target.grad

    def begin_forward(self):
        """All chunks are historical until they are pushed."""
        for name, array in self.current.items():
            self.backend.copy(self.snapshot[name], array)

    def end_forward(self, epoch: int):
        """Hold this epoch's rows if it is time to, or if there are none to hold yet; backward may
        need their arrays."""
        if (epoch + 1) % self.hold and not self.anew:
            return
        for name, array in self.current.items():
            self.backend.copy(array, self.snapshot[name])
        self.held, self.anew = epoch, False

    def begin_backward(self):
        """Gradients of chunks that are not there yet are zero, unless last epoch's are used."""
        if not self.stale_gradients:
            for array in self.gradients.values():
                self.backend.clear(array)

    def age(self, epoch: int) -> int | str:
        """How many epochs ago the snapshots were taken; "zeros" before there are any."""
        return epoch - self.held if self.held >= 0 else "zeros"

    # -- checkpoint: the interface of an exchange --------------------------------------------------
    def _arrays(self) -> dict:
        return self.snapshot | (self.gradients if self.stale_gradients else {})

    def state(self) -> dict[str, np.ndarray]:
        """What the next epoch depends on; to be written at once: a copy would be as large as all
        snapshots."""
        arrays = {name: np.asarray(self.backend.to_host(array))
                  for name, array in self._arrays().items()}
        return arrays | {"ids": self.graph.local.ids, "chunks": self.graph.chunks,
                         "held": np.array([self.held])}

    def fits(self, state: dict[str, np.ndarray]) -> bool:
        """Are these snapshots of the same nodes, chunks and hops?"""
        return ({"ids", "chunks"} <= set(state)
                and np.array_equal(state["ids"], self.graph.local.ids)
                and np.array_equal(state["chunks"], self.graph.chunks)
                and all(name in state and state[name].shape == array.shape
                        for name, array in self._arrays().items()))

    def restore(self, state: dict[str, np.ndarray]):
        """Go on from `state()`."""
        for name, array in self._arrays().items():
            self.backend.copy(np.ascontiguousarray(state[name], self.backend.dtype), array)
        self.held, self.anew = int(state["held"][0]), False

    def start_anew(self):
        """There are no snapshots: the next epoch is exact and leaves some."""
        self.anew = True
