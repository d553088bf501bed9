"""Running a launch: which threads go on, and where they meet."""

from __future__ import annotations

import contextlib

import numpy as np

from .memory import GlobalMemory, Memory
from .text import TYPES, PTXError

THREADS_AT_ONCE = 1 << 15            # blocks beyond that run after the others
MOST_STEPS = 2_000_000
GONE = -1

_counter = None


@contextlib.contextmanager
def counting(counter):
    """Let `counter` see every access of the launches in a block."""
    global _counter
    _counter, before = counter, _counter
    try:
        yield counter
    finally:
        _counter = before


def run(kernel, grid, block, shared_bytes: int, arguments: bytes, extents):
    """One launch. arguments: eight bytes each; extents: (address, bytes) of what they point to."""
    parameters = {name: np.frombuffer(arguments, TYPES[kind], 1, 8 * k)[0].reshape(())
                  for k, (kind, name) in enumerate(kernel.parameters)}
    memory = GlobalMemory(extents)
    per_block, n_blocks = int(np.prod(block)), int(np.prod(grid))
    at_once = max(1, THREADS_AT_ONCE // per_block)
    if _counter is not None:
        _counter.launch(kernel.name)
    with np.errstate(all="ignore"):
        for first in range(0, n_blocks, at_once):
            numbers = np.arange(first, min(first + at_once, n_blocks))
            threads = Threads(grid, block, numbers)
            view = Memory(memory, threads, kernel.static_shared + shared_bytes, _counter)
            Scheduler(kernel, parameters, threads, view).run()


class Threads:
    """The threads of some blocks: where each one is in the grid."""

    def __init__(self, grid, block, numbers):
        self.per_block, self.n_blocks = int(np.prod(block)), len(numbers)
        n = self.per_block * self.n_blocks
        self.n, self.number = n, np.arange(n)
        thread = np.tile(np.arange(self.per_block, dtype=np.uint32), self.n_blocks)
        self.block = np.repeat(np.arange(self.n_blocks), self.per_block)
        self.block_identity = np.repeat(numbers, self.per_block).astype(np.int64)
        self.identity = self.block_identity * self.per_block + thread        # in the whole grid
        self.phase = np.zeros(self.n_blocks, np.int32)                       # barriers passed
        self.warps_per_block = -(-self.per_block // 32)
        self.warp = self.block * self.warps_per_block + thread // 32
        self.lane = (thread % 32).astype(np.int64)
        here = self.block_identity.astype(np.uint32)
        self.special = {f"%{what}.{axis}": np.asarray(value, np.uint32)
                        for what, number, size in (("tid", thread, block), ("ctaid", here, grid))
                        for axis, value in zip("xyz", _position(number, size))}
        self.special |= {f"%{what}.{axis}": np.full(n, size, np.uint32)
                         for what, sizes in (("ntid", block), ("nctaid", grid))
                         for axis, size in zip("xyz", sizes)}
        self.special["%laneid"] = thread % np.uint32(32)


def _position(number, size):
    return number % size[0], number // size[0] % size[1], number // (size[0] * size[1])


class _Chosen(dict):
    """Special registers of some threads, taken when they are read."""

    def __init__(self, source, idx):
        self.source, self.idx = source, idx

    def __missing__(self, name):
        value = self[name] = self.source[name][self.idx]
        return value


class Scheduler:
    """Runs the threads that are at the lowest block of code, again and again."""

    def __init__(self, kernel, parameters, threads: Threads, memory: Memory):
        self.kernel, self.parameters = kernel, parameters
        self.threads, self.memory = threads, memory
        self.registers = {
            name: np.full(threads.n, np.nan, dtype) if np.dtype(dtype).kind == "f"
            else np.full(threads.n, 0xAA).astype(dtype) for name, dtype in kernel.registers.items()}
        self.at = np.zeros(threads.n, np.int64)          # the block of code of each thread
        self.waiting = np.zeros(threads.n, bool)

    def run(self):
        for _ in range(MOST_STEPS):
            ready = ~self.waiting & (self.at != GONE)
            if not ready.any():
                if (self.at == GONE).all():
                    return
                raise PTXError(f"threads wait for ever at {self._where()}")
            here = int(self.at[ready].min())
            chosen = np.flatnonzero(ready & (self.at == here))
            kind, code = self.kernel.code[here]
            if kind == "code":
                self._step(code, chosen)
            elif kind == "barrier":
                self._barrier(here, chosen)
            else:
                self._shuffle(code, here, chosen)
        raise PTXError(f"more than {MOST_STEPS} steps")

    def _where(self) -> str:
        return "; ".join(sorted({self.kernel.blocks[k][0] for k in self.at[self.at != GONE]}))

    def _step(self, code, chosen):
        everyone = len(chosen) == self.threads.n
        special = self.threads.special if everyone else _Chosen(self.threads.special, chosen)
        after, taken, target = code(self.registers, special, self.parameters, self.memory,
                                    slice(None) if everyone else chosen, len(chosen))
        self.at[chosen] = after if taken is None else np.where(taken, target, after)

    def _barrier(self, here: int, chosen):
        """All threads of a block meet; that some have left or wait elsewhere is an error."""
        self.waiting[chosen] = True
        threads, present = self.threads, np.zeros(self.threads.n, bool)
        present[:] = self.waiting & (self.at == here)
        involved = np.zeros(threads.n_blocks, bool)
        involved[threads.block[chosen]] = True
        strangers = involved[threads.block] & ~present
        elsewhere = strangers & self.waiting & self._at_a_barrier()
        if elsewhere.any():
            raise PTXError("threads of one block are at different barriers")
        if (strangers & (self.at == GONE)).any():
            raise PTXError("a barrier that some threads of the block will never reach: they have "
                           "left the kernel")
        arrived = np.bincount(threads.block[present], minlength=threads.n_blocks)
        complete = arrived == threads.per_block
        threads.phase[complete] += 1
        go = present & complete[threads.block]
        self.waiting[go] = False
        self.at[go] = here + 1

    def _at_a_barrier(self):
        barriers = [k for k, (kind, _) in enumerate(self.kernel.code) if kind == "barrier"]
        return np.isin(self.at, barriers)

    def _value(self, operand: str, chosen):
        if operand.startswith("%"):
            return self.registers[operand][chosen].view(np.uint32)
        return np.full(len(chosen), int(operand, 0) & 0xffffffff, np.uint32)

    def _shuffle(self, operands, here: int, chosen):
        """Lanes of a warp exchange a register once all lanes of their mask have come."""
        mode, target, valid, source, distance, clamp, members = operands
        self.waiting[chosen] = True
        threads = self.threads
        present = np.flatnonzero(self.waiting & (self.at == here))
        mask, lane = self._value(members, present), threads.lane[present].astype(np.uint32)
        if not (mask >> lane & 1).all():
            raise PTXError("a lane is not in its own mask at " + self.kernel.blocks[here][0])
        arrived = np.zeros(threads.n_blocks * threads.warps_per_block, np.uint32)
        np.bitwise_or.at(arrived, threads.warp[present], np.uint32(1) << lane)
        go = present[(arrived[threads.warp[present]] & mask) == mask]
        if not len(go):
            return
        table = np.zeros((len(arrived), 32), np.uint32)
        table[threads.warp[go], threads.lane[go]] = self._value(source, go)
        partner, valid_lane = _partners(mode, threads.lane[go], self._value(distance, go),
                                        self._value(clamp, go))
        if not (self._value(members, go).astype(np.int64) >> partner & 1).all():
            raise PTXError("a shuffle reads a lane outside its mask at "
                           + self.kernel.blocks[here][0])
        got = table[threads.warp[go], partner]
        self.registers[target][go] = got.view(self.registers[target].dtype)
        if valid:
            self.registers[valid][go] = valid_lane
        self.waiting[go] = False
        self.at[go] = here + 1


def _partners(mode: str, lane, distance, clamp):
    """Whose value each lane gets, and whether that lane is in reach (else it keeps its own)."""
    distance, clamp = distance.astype(np.int64) & 31, clamp.astype(np.int64)
    limit, segment = clamp & 31, clamp >> 8 & 31
    first = lane & segment
    last = first | (limit & ~segment)
    partner = {"idx": first | (distance & ~segment), "bfly": lane ^ distance,
               "down": lane + distance, "up": lane - distance}[mode]
    valid = partner >= last if mode == "up" else partner <= last
    return np.where(valid, partner, lane), valid
