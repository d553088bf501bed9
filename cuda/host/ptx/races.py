"""Races: two threads that touch a byte, one of them writing, with nothing that orders them.

What orders two threads of a launch is a barrier of their block. So a byte's last writer and its
readers since are kept with the number of barriers that their block had passed.
"""

from __future__ import annotations

import numpy as np

NOBODY, SEVERAL = -1, -2


class Shadow:
    """Who wrote and who read each byte last."""

    def __init__(self, nbytes: int):
        self.writer = np.full(nbytes, NOBODY, np.int64)
        self.writer_phase = np.zeros(nbytes, np.int32)
        self.reader = np.full(nbytes, NOBODY, np.int64)
        self.reader_block = np.full(nbytes, NOBODY, np.int64)
        self.reader_phase = np.zeros(nbytes, np.int32)

    def note(self, at, size: int, thread, block, phase, threads_per_block: int,
             writes: bool) -> tuple[int, int] | None:
        """`size` bytes from each of `at` on, by these threads; two threads that race, or None."""
        at = (at[:, None] + np.arange(size)).ravel()
        thread, block, phase = (np.repeat(x, size) for x in (thread, block, phase))
        writer = self.writer[at]
        before = (writer // threads_per_block == block) & (self.writer_phase[at] < phase)
        found = _first((writer != NOBODY) & (writer != thread) & ~before, writer, thread)
        if found:
            return found
        if not writes:
            self._note_read(at, thread, block, phase)
            return None
        reader = self.reader[at]
        before = (self.reader_block[at] == block) & (self.reader_phase[at] < phase)
        found = _first((reader != NOBODY) & (reader != thread) & ~before, reader, thread)
        self.writer[at], self.writer_phase[at] = thread, phase
        # Two lanes of one instruction: only one of them is there now.
        found = found or _first(self.writer[at] != thread, self.writer[at], thread)
        self.reader[at] = NOBODY
        return found

    def _note_read(self, at, thread, block, phase):
        reader, reader_block = self.reader[at], self.reader_block[at]
        outdated = (reader == NOBODY) | ((reader_block == block)
                                         & (self.reader_phase[at] < phase))
        self.reader[at] = np.where(outdated | (reader == thread), thread, SEVERAL)
        self.reader_block[at] = np.where(outdated | (reader_block == block), block, SEVERAL)
        self.reader_phase[at] = phase
        # Of several lanes that read a byte at once, the last was kept.
        self.reader[at[self.reader[at] != thread]] = SEVERAL
        self.reader_block[at[self.reader_block[at] != block]] = SEVERAL


def _first(conflict, one, other) -> tuple[int, int] | None:
    if not conflict.any():
        return None
    k = np.flatnonzero(conflict)[0]
    return int(one[k]), int(other[k])
