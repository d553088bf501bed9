"""How large and how deep the values of a pickle are, found out without building any of them.

A pickle of 300 bytes can describe a tuple of twice a tuple of twice a tuple and so on: it takes
hardly any memory, but its hash or its text takes 2^100 steps. Whoever loads a pickle has it
measured here first.
"""

from __future__ import annotations

import pickle
import pickletools
from collections.abc import Sequence
from typing import BinaryIO

MOST_DEPTH = 200
_MEMO_WRITES = ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE")
_MEMO_READS = ("GET", "BINGET", "LONG_BINGET")
# Opcodes that change the value below what they take, which the memo may hold as well.
_CHANGING = ("APPEND", "APPENDS", "SETITEM", "SETITEMS", "ADDITEMS", "BUILD")


class _Value:
    """The number of values that one consists of, counted as often as they are met, and how deep
    they lie."""

    __slots__ = ("size", "depth")

    def __init__(self, parts: Sequence[_Value] = ()):
        self.size, self.depth = 1, 1
        self.add(parts)

    def add(self, parts: Sequence[_Value]):
        self.size += sum(part.size for part in parts)
        self.depth = max([self.depth, *(part.depth + 1 for part in parts)])


def check_pickle(data: bytes | BinaryIO, n_bytes: int, opcodes: frozenset[str] | None = None):
    """Raise UnpicklingError or ValueError for a pickle that is no program of the pickle machine,
    uses another opcode than these, asks for `bytearray`, or describes values that are far larger
    than its n_bytes, or deeper than anybody's data. A stream is left at the end of it."""
    stack: list = []
    memo: dict[int, _Value] = {}
    mark = object()
    for opcode, argument, at in pickletools.genops(data):
        name, position = opcode.name, at or 0        # bytes and files have positions
        if opcodes is not None and name not in opcodes:
            raise pickle.UnpicklingError(f"it uses {name} at byte {position}")
        # Called with a number, it takes as many bytes; torch allows it, and no tensor needs it.
        if isinstance(argument, str) and argument.split(" ")[-1] == "bytearray":
            raise pickle.UnpicklingError(f"it asks for bytearray at byte {position}")
        # The unpickler's memory grows with the largest of these numbers.
        if name in _MEMO_WRITES and argument is not None and int(argument) > n_bytes:
            raise pickle.UnpicklingError(
                f"it has the entry {str(argument)[:20]} at byte {position}")
        if name == "MARK":
            stack.append(mark)
        elif name in _MEMO_WRITES:
            memo[len(memo) if argument is None else int(argument)] = _top(stack, mark, position)
        elif name in _MEMO_READS:
            stack.append(memo.get(int(argument or 0)) or _Value())
        elif name == "DUP":
            stack.append(_top(stack, mark, position))
        else:
            _apply(opcode, stack, mark, position, n_bytes)


def _top(stack: list, mark, position: int) -> _Value:
    if not stack or stack[-1] is mark:
        raise pickle.UnpicklingError(f"it takes a value that is not there at byte {position}")
    return stack[-1]


def _apply(opcode, stack: list, mark, position: int, n_bytes: int):
    """Take what an opcode takes, and leave what it leaves."""
    taken = _taken(opcode, stack, mark, position)
    if opcode.name in _CHANGING:
        taken[0].add(taken[1:])
        made = [taken[0]]
    else:
        made = [_Value(taken) for _ in opcode.stack_after]
    stack += made
    for value in made:
        if value.size > 10 * n_bytes + 1000 or value.depth > MOST_DEPTH:
            raise pickle.UnpicklingError("its values are far larger than the file, or too deep, "
                                         f"at byte {position}")


def _taken(opcode, stack: list, mark, position: int) -> list[_Value]:
    operands = opcode.stack_before
    if pickletools.markobject not in operands:
        return _popped(stack, mark, len(operands), position)
    at = len(stack) - 1
    while at >= 0 and stack[at] is not mark:
        at -= 1
    if at < 0:
        raise pickle.UnpicklingError(f"it goes back to a mark that is not there at byte {position}")
    items = stack[at + 1:]
    del stack[at:]
    return _popped(stack, mark, operands.index(pickletools.markobject), position) + items


def _popped(stack: list, mark, count: int, position: int) -> list[_Value]:
    values = stack[len(stack) - count:] if count else []
    if len(values) < count or mark in values:
        raise pickle.UnpicklingError(f"it takes a value that is not there at byte {position}")
    if count:
        del stack[-count:]
    return values
