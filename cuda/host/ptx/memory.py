"""The memory of a launch: global memory in place, shared memory per block, every access checked."""

from __future__ import annotations

import ctypes

import numpy as np

from .races import Shadow
from .text import PTXError
from .translate import SHARED_BASE


class GlobalMemory:
    """The arrays that were passed to a launch, and nothing else."""

    def __init__(self, extents: list[tuple[int, int]]):
        """extents: (address, bytes) of each array; those that overlap are one."""
        merged: list[list[int]] = []
        for start, nbytes in sorted(e for e in extents if e[1]):
            if merged and start < merged[-1][1]:
                merged[-1][1] = max(merged[-1][1], start + nbytes)
            else:
                merged.append([start, start + nbytes])
        self.starts = np.array([start for start, _ in merged], np.uint64)
        self.ends = np.array([end for _, end in merged], np.uint64)
        base = merged[0][0] & ~15 if merged else 0
        size = (merged[-1][1] - base + 15) & ~15 if merged else 0
        self.base = np.uint64(base)
        raw = (np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(base)) if size
               else np.zeros(0, np.uint8))
        self.views = {k: raw.view(f"u{k}") for k in (1, 2, 4, 8)}
        lengths = [end - start for start, end in merged]
        self.shadow_starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        self.shadow = Shadow(int(self.shadow_starts[-1]))

    def locate(self, address, size: int, block):
        """(byte in the views, byte in the shadow) of each access; all blocks see the same."""
        array = np.searchsorted(self.starts, address, "right") - 1
        outside = array < 0
        if len(self.ends):
            outside |= address + np.uint64(size) > self.ends[np.maximum(array, 0)]
        if outside.any():
            raise PTXError(f"{size} bytes at {int(address[outside][0]):#x} are outside the arrays "
                           "that the kernel was given")
        within = (address - self.starts[array]).astype(np.int64)
        return (address - self.base).astype(np.int64), self.shadow_starts[array] + within


class SharedMemory:
    """What each of some blocks has for itself; it starts as NaN."""

    def __init__(self, n_blocks: int, nbytes: int):
        self.nbytes, self.pitch = nbytes, -(-max(nbytes, 1) // 16) * 16
        raw = np.full(n_blocks * self.pitch, 0xFF, np.uint8)
        self.views = {k: raw.view(f"u{k}") for k in (1, 2, 4, 8)}
        self.shadow = Shadow(len(raw))

    def locate(self, address, size: int, block):
        if (address + np.uint64(size) > np.uint64(self.nbytes)).any():
            raise PTXError(f"{size} bytes at {int(address.max())} of {self.nbytes} bytes of shared "
                           "memory")
        at = block * self.pitch + address.astype(np.int64)
        return at, at


class Memory:
    """What the threads of some blocks see."""

    def __init__(self, global_memory: GlobalMemory, threads, shared_bytes: int, counter=None):
        self.globals, self.threads, self.counter = global_memory, threads, counter
        self.shared = SharedMemory(threads.n_blocks, shared_bytes)

    def _access(self, space: str, address, size: int, idx, n: int, writes: bool):
        """The views and the first byte of each access, after all checks."""
        address = np.broadcast_to(address, (n,))
        lanes = self.threads.number[idx]
        generic = space == "generic"
        if generic:
            in_shared = address >= np.uint64(SHARED_BASE)
            if in_shared.any() and not in_shared.all():
                raise PTXError("a generic access to shared memory in some lanes and to global "
                               "memory in others")
            space = "shared" if in_shared.any() else "global"
            address = address - np.uint64(SHARED_BASE) if space == "shared" else address
        if (address % np.uint64(size)).any():
            wrong = address[address % np.uint64(size) != 0][0]
            raise PTXError(f"{size} bytes at {int(wrong):#x} are not aligned")
        if self.counter is not None:
            self.counter.note(space, generic, address, size, lanes, writes)
        if space not in ("shared", "global"):
            raise PTXError(f"this machine has no {space} memory")
        memory = self.shared if space == "shared" else self.globals
        at, in_shadow = memory.locate(address, size, self.threads.block[lanes])
        race = memory.shadow.note(in_shadow, size, self.threads.identity[lanes],
                                  self.threads.block_identity[lanes],
                                  self.threads.phase[self.threads.block[lanes]],
                                  self.threads.per_block, writes)
        if race:
            raise PTXError(f"a race: threads {race[0] if race[0] >= 0 else 'of several blocks'} "
                           f"and {race[1]} touch a byte of {space} memory, one of them writes, and "
                           "no barrier orders them")
        return memory.views, at

    def load(self, space: str, address, dtype, count: int, idx, n: int) -> list:
        size = np.dtype(dtype).itemsize
        views, at = self._access(space, address, size * count, idx, n, False)
        element = at // size
        return [views[size][element + k].view(dtype) for k in range(count)]

    def store(self, space: str, address, values, dtype, idx, n: int):
        size = np.dtype(dtype).itemsize
        views, at = self._access(space, address, size * len(values), idx, n, True)
        element = at // size
        for k, value in enumerate(values):
            views[size][element + k] = np.broadcast_to(np.asarray(value), (n,)).view(f"u{size}")
