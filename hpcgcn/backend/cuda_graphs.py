"""An epoch as a CUDA graph: recorded once, then one launch per epoch instead of one per kernel.

    recording = Recording(backend, work)     work(epoch) queues the kernels of an epoch
    recording(epoch, places)                 the first time it does, the second time it is recorded,
                                             from then on it is replayed; recorded anew when arrays
                                             have moved

A launch is replayed with the arguments that it was recorded with. What changes from epoch to epoch
must therefore be in device memory: the keys of random draws, which are written there before each
replay. Nothing may be asked of the device while the work is recorded, and no memory allocated:
scratch arrays, lists of rows and compiled kernels are there after the first epoch. A graph keeps no
memory alive, so the recording does.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable
from typing import Any

import numpy as np

from hpcgcn import philox
from hpcgcn.errors import BackendError


class Recording:
    """The work of an epoch, and the graph that it has become."""

    def __init__(self, backend, work: Callable[[int], Any]):
        self._backend, self._work = backend, work
        self._places = -1                    # where arrays were when it was recorded
        self._graph: Any = None
        self._result: Any = None             # of the work, for the host to read after each replay
        self._epoch = -1                     # in which it is recorded
        self._draws: dict[tuple, int] = {}   # where the key of each draw is in the table
        self._keys: list[philox.Key] = []
        self._table: Any = None              # two words per draw, on the device
        self._arrays: list = []              # results, made in the first epoch
        self._next = 0
        self._kept: list = []
        self._recording = False

    def __call__(self, epoch: int, places: int):
        if self._table is None:
            self._places = places
            return self._first(epoch)
        if self._graph is None or places != self._places:
            self._places = places
            self._record(epoch)
        self._write_keys(epoch)
        self._graph.launch(self._backend.compute)
        return self._result

    # -- what operations ask for while the work runs --------------------------------------------
    @property
    def records(self) -> bool:
        """Are launches recorded now, instead of done?"""
        return self._recording

    def key(self, key: philox.Key):
        """Where on the device the key of this draw will be, in whatever epoch."""
        first = 2 * self._draws[key.draw[:1] + key.draw[2:]]
        return self._table[first:first + 2]

    def varies(self, key: philox.Key) -> bool:
        """Is it another key in each epoch? Otherwise it may be an argument."""
        return key.epoch == self._epoch

    def note(self, key: philox.Key):
        """In the first epoch: there will be such a draw."""
        draw = key.draw[:1] + key.draw[2:]
        if self.varies(key) and draw not in self._draws:
            self._draws[draw] = len(self._keys)
            self._keys.append(key)

    def array(self, shape, dtype):
        """An array that the host reads after the work: the same one in each epoch."""
        if not self._recording:
            self._arrays.append(self._backend.empty(shape, dtype))
            return self._arrays[-1]
        array, self._next = self._arrays[self._next], self._next + 1
        return array

    def keep(self, arguments):
        """The graph refers to these."""
        if self._recording:
            self._kept.append(arguments)

    # -- epochs -----------------------------------------------------------------------------------
    def _first(self, epoch: int):
        self._epoch, backend = epoch, self._backend
        backend.recording = self
        try:
            result = self._work(epoch)
        finally:
            backend.recording = None
        self._table = backend.empty((2 * max(len(self._keys), 1),), np.uint32)
        return result

    def _record(self, epoch: int):
        backend, stream = self._backend, self._backend.compute
        mode = backend.cupy.cuda.runtime.streamCaptureModeThreadLocal
        self._epoch, self._recording, backend.recording = epoch, True, self
        self._kept, self._next = [], 0
        with _no_garbage_collection():
            stream.begin_capture(mode)
            try:
                self._result = self._work(epoch)
                self._graph = stream.end_capture()
            except Exception as error:
                _abandon(stream)
                raise BackendError(f"this epoch cannot be recorded as a CUDA graph ({error}): "
                                   "leave --cuda-graphs out") from error
            finally:
                self._recording, backend.recording = False, None

    def _write_keys(self, epoch: int):
        if self._keys:
            words = np.array([key.at(epoch) for key in self._keys], np.uint32).ravel()
            self._backend.copy(words, self._table)


@contextlib.contextmanager
def _no_garbage_collection():
    """What an earlier run left waits for its copies when it is collected: not in a recording."""
    gc.collect()
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _abandon(stream):
    """End a recording that went wrong; that it did is known."""
    try:
        if stream.is_capturing():
            stream.end_capture()
    except Exception:  # noqa: BLE001 - what a broken recording raises at its end tells nothing more
        return
