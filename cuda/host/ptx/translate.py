"""A basic block becomes a Python function on NumPy arrays: one element per thread.

    block(R, T, P, M, idx, n) -> (next block, taken, target)

R: registers, T: special registers of the chosen threads, P: parameters, M: memory, idx: which
threads, n: how many. `taken` is None where all go to the next block, else says who goes to
`target`; -1 is the end of the kernel.
"""

from __future__ import annotations

import re

import numpy as np

from .arithmetic import HELPERS
from .text import MEETING, SPECIAL, TYPES, PTXError, split

SHARED_BASE = 1 << 60                # the window of generic addresses that is shared memory
SYMBOLS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
BINARY = {"add": "+", "sub": "-", "and": "&", "or": "|", "xor": "^", "rem": "%"}
UNARY = {"neg": "(-{})", "abs": "np.abs({})", "not": "(~{})", "sqrt": "np.sqrt({})",
         "rcp": "(np.float32(1) / {})",
         "ex2": "np.exp2({}.astype(np.float64)).astype(np.float32)",
         "lg2": "np.log2({}.astype(np.float64)).astype(np.float32)"}
ROUNDED_EXACTLY = ("sqrt", "rcp", "div")


def translate(kernel, number: int):
    """("code", function), ("barrier", text) or ("shuffle", operands)."""
    block = kernel.blocks[number]
    if block and MEETING.match(block[0]):
        shuffle = re.match(r"shfl\.sync\.(\w+)\.b32 (%\w+)(?:\|(%\w+))?, ?(\S+), ?(\S+), ?(\S+), "
                           r"?(\S+)$", block[0])
        if shuffle:
            return "shuffle", shuffle.groups()
        if re.match(r"(bar\.sync|barrier\.sync(\.aligned)?) 0$", block[0]):
            return "barrier", block[0]
        raise PTXError(f"this machine does not know {block[0]}")
    return "code", Block(kernel, number).function()


def _name(dtype) -> str:
    return {"bool": "bool_"}.get(np.dtype(dtype).name, np.dtype(dtype).name)


def _unsigned(nbytes: int) -> type:
    return TYPES[f"u{8 * nbytes}"]


class Block:
    """The translation of one basic block."""

    def __init__(self, kernel, number: int):
        self.kernel, self.number = kernel, number
        self.lines: list[str] = []               # of the function
        self.loaded: set[str] = set()            # registers that are local variables by now
        self.written: list[str] = []
        self.ended = False
        for instruction in kernel.blocks[number]:
            self.add(instruction)

    def function(self):
        if not self.ended:
            self.save()
            self.lines.append(f"return {self.number + 1}, None, None")
        source = "def block(R, T, P, M, idx, n):\n    " + "\n    ".join(self.lines)
        scope = {"np": np, **HELPERS}
        exec(compile(source, f"<{self.kernel.name}, block {self.number}>", "exec"), scope)
        return scope["block"]

    def add(self, instruction: str):
        guard = re.match(r"@(!?)(%\w+) (.*)", instruction)
        operation, _, rest = (guard.group(3) if guard else instruction).partition(" ")
        parts = operation.split(".")
        if parts[0] in ("bra", "ret", "exit"):
            self.jump(guard, "-1" if parts[0] != "bra" else str(self.kernel.labels[rest.strip()]))
        elif guard:
            raise PTXError(f"this machine does not know {instruction}")
        elif parts[0] in UNARY:
            self.unary(parts, split(rest))
        elif parts[0] in BINARY and "rz" not in parts:
            self.binary(parts, split(rest), BINARY[parts[0]])
        else:
            method = getattr(self, f"op_{parts[0]}", None)
            if method is None:
                raise PTXError(f"this machine does not know {instruction}")
            method(parts, split(rest))

    def jump(self, guard, target: str):
        # The condition first: saving a register does not change it.
        taken = f"{'~' if guard.group(1) else ''}{self.read(guard.group(2), np.bool_)}" if guard \
            else None
        self.save()
        self.lines.append(f"return {self.number + 1}, {taken}, {target}" if guard
                          else f"return {target}, None, None")
        self.ended = True

    # -- operands --------------------------------------------------------------------------------
    def read(self, operand: str, dtype) -> str:
        """An expression for an operand as a NumPy type."""
        operand = operand.strip()
        if operand in SPECIAL:
            return f"T['{operand}']" + ("" if dtype is np.uint32 else f".astype(np.{_name(dtype)})")
        if not operand.startswith("%"):
            return self.constant(operand, dtype)
        own, variable = self.kernel.registers[operand], "v" + operand[1:]
        if operand not in self.loaded:
            self.loaded.add(operand)
            self.lines.append(f"{variable} = R['{operand}'][idx]")
        if own is dtype:
            return variable
        size, wanted = np.dtype(own).itemsize, np.dtype(dtype).itemsize
        if size == wanted:
            return f"{variable}.view(np.{_name(dtype)})"
        if size > wanted:                                # a wider register: its low bits
            return (f"{variable}.view(np.uint{8 * size}).astype(np.uint{8 * wanted})"
                    f".view(np.{_name(dtype)})")
        raise PTXError(f"operand {operand} is narrower than {_name(dtype)}")

    def constant(self, text: str, dtype) -> str:
        number = re.fullmatch(r"0[fF]([0-9a-fA-F]{8})|0[dD]([0-9a-fA-F]{16})", text)
        if number:
            kind = "32" if number.group(1) else "64"
            bits = int(number.group(1) or number.group(2), 16)
            value = f"np.array({bits}, np.uint{kind}).view(np.float{kind})"
            return value if np.dtype(dtype).itemsize * 8 == int(kind) \
                else f"{value}.astype(np.{_name(dtype)})"
        if text in self.kernel.shared:
            return f"np.array({self.kernel.shared[text]}, np.{_name(dtype)})"
        whole = int(text, 0)
        if dtype is np.bool_:
            return f"np.array({bool(whole)})"
        if np.dtype(dtype).kind not in "ui":
            raise PTXError(f"constant {text} as {_name(dtype)}")
        bits = 8 * np.dtype(dtype).itemsize
        unsigned = f"np.array({whole & ((1 << bits) - 1)}, np.uint{bits})"
        return unsigned if np.dtype(dtype).kind == "u" else f"{unsigned}.view(np.{_name(dtype)})"

    def write(self, register: str, expression: str, dtype):
        own = self.kernel.registers[register]
        if own is not dtype:
            target, given = np.dtype(own), np.dtype(dtype)
            if target.itemsize == given.itemsize:
                expression = f"view({expression}, np.{_name(own)})"
            elif given.kind == "i":                      # sign-extended
                expression = (f"view(({expression}).astype(np.int{8 * target.itemsize}), "
                              f"np.{_name(own)})")
            else:
                expression = (f"view({expression}, np.uint{8 * given.itemsize})"
                              f".astype(np.uint{8 * target.itemsize}).view(np.{_name(own)})")
        self.lines.append(f"v{register[1:]} = {expression}")
        self.loaded.add(register)
        if register not in self.written:
            self.written.append(register)

    def save(self):
        """Keep the registers that a later block reads."""
        for register in self.written:
            if register in self.kernel.live_out[self.number]:
                self.lines.append(f"R['{register}'][idx] = v{register[1:]}")
        self.written = []

    def operands(self, operands, dtype, parts) -> list[str]:
        texts = [self.read(x, dtype) for x in operands]
        flush = "ftz" in parts and dtype is np.float32
        return [f"ftz({text})" for text in texts] if flush else texts

    @staticmethod
    def result(expression: str, parts, dtype) -> str:
        for what in ("ftz", "sat"):
            if what in parts and dtype is np.float32:
                expression = f"{what}({expression})"
        return expression

    # -- arithmetic ------------------------------------------------------------------------------
    def unary(self, parts, args):
        if parts[0] in ROUNDED_EXACTLY and "rn" not in parts:
            raise PTXError(f"this machine does not know {'.'.join(parts)}")
        dtype = TYPES[parts[-1]]
        a, = self.operands(args[1:], dtype, parts)
        self.write(args[0], self.result(UNARY[parts[0]].format(a), parts, dtype), dtype)

    def binary(self, parts, args, symbol: str):
        dtype = TYPES[parts[-1]]
        a, b = self.operands(args[1:], dtype, parts)
        self.write(args[0], self.result(f"({a} {symbol} {b})", parts, dtype), dtype)

    def op_add(self, parts, args):                       # the others are binary()
        a, b = self.operands(args[1:], np.float32, parts)
        self.write(args[0], self.result(f"add_rz({a}, {b})", parts, np.float32), np.float32)

    def op_div(self, parts, args):
        floats = np.dtype(TYPES[parts[-1]]).kind == "f"
        if floats and "rn" not in parts:
            raise PTXError(f"this machine does not know {'.'.join(parts)}")
        self.binary(parts, args, "/" if floats else "//")

    def op_mul(self, parts, args):
        dtype = TYPES[parts[-1]]
        kind, size = np.dtype(dtype).kind, np.dtype(dtype).itemsize
        wide = np.dtype(f"{kind}{2 * size}").type if kind in "ui" and size < 8 else None
        if "wide" in parts or "hi" in parts:
            if wide is None:
                raise PTXError(f"this machine does not know {'.'.join(parts)}")
            a, b = (f"{self.read(x, dtype)}.astype(np.{_name(wide)})" for x in args[1:])
            if "wide" in parts:
                self.write(args[0], f"({a} * {b})", wide)
            else:
                self.write(args[0], f"(({a} * {b}) >> {8 * size}).astype(np.{_name(dtype)})", dtype)
        else:
            self.binary(parts, args, "*")

    def op_mad(self, parts, args):
        dtype = TYPES[parts[-1]]
        if "lo" not in parts:
            raise PTXError(f"this machine does not know {'.'.join(parts)}")
        a, b, c = (self.read(x, dtype) for x in args[1:])
        self.write(args[0], f"({a} * {b} + {c})", dtype)

    def op_fma(self, parts, args):
        dtype = TYPES[parts[-1]]
        a, b, c = self.operands(args[1:], dtype, parts)
        single = {"rn": "fma", "rm": "fma_rm"}
        name = single[parts[1]] if dtype is np.float32 else "fma64"
        self.write(args[0], self.result(f"{name}({a}, {b}, {c})", parts, dtype), dtype)

    def _extreme(self, parts, args):
        dtype = TYPES[parts[-1]]
        a, b = self.operands(args[1:], dtype, parts)
        prefix = "" if np.dtype(dtype).kind == "f" else "np."
        self.write(args[0], f"{prefix}{parts[0]}imum({a}, {b})", dtype)

    op_min = op_max = _extreme

    def _shift(self, parts, args):
        dtype = TYPES[parts[-1]]
        a, by = self.read(args[1], dtype), self.read(args[2], np.uint32)
        self.write(args[0], f"{parts[0]}({a}, {by})", dtype)

    op_shl = op_shr = _shift

    def op_shf(self, parts, args):
        if parts[2:] != ["wrap", "b32"]:
            raise PTXError(f"this machine does not know {'.'.join(parts)}")
        low, high, by = (self.read(x, np.uint32) for x in args[1:])
        self.write(args[0], f"funnel({low}, {high}, {by}, {parts[1] == 'l'})", np.uint32)

    def op_bfi(self, parts, args):
        dtype = TYPES[parts[-1]]
        a, b = self.read(args[1], dtype), self.read(args[2], dtype)
        position, length = int(args[3]), int(args[4])
        mask, name = ((1 << length) - 1) << position, _name(dtype)
        others = (1 << 8 * np.dtype(dtype).itemsize) - 1 - mask
        self.write(args[0], f"((({a} << np.{name}({position})) & np.{name}({mask})) | "
                            f"({b} & np.{name}({others})))", dtype)

    def op_setp(self, parts, args):
        dtype, compare = TYPES[parts[-1]], parts[1]
        a, b = self.operands(args[1:], dtype, parts)
        unordered = f"(np.isnan({a}) | np.isnan({b}))" if np.dtype(dtype).kind == "f" else ""
        if compare == "num":
            expression = f"~{unordered}"
        elif compare == "nan":
            expression = unordered
        elif unordered and compare[:-1] in SYMBOLS:      # equ, neu, ...: true for NaN
            expression = f"(({a} {SYMBOLS[compare[:-1]]} {b}) | {unordered})"
        elif unordered and compare == "ne":
            expression = f"(({a} != {b}) & ~{unordered})"
        else:
            expression = f"({a} {SYMBOLS[compare]} {b})"
        self.write(args[0], expression, np.bool_)

    def op_selp(self, parts, args):
        dtype = TYPES[parts[-1]]
        a, b, chosen = (self.read(x, t) for x, t in zip(args[1:], (dtype, dtype, np.bool_)))
        self.write(args[0], f"np.where({chosen}, {a}, {b})", dtype)

    # -- moves and conversions -------------------------------------------------------------------
    def op_mov(self, parts, args):
        dtype = TYPES[parts[-1]]
        nbytes = np.dtype(dtype).itemsize
        if args[0].startswith("{"):                      # one register into several
            names = args[0].strip("{} ").replace(" ", "").split(",")
            wide, part = self.read(args[1], _unsigned(nbytes)), nbytes // len(names)
            for k, name in enumerate(names):
                self.write(name, f"({wide} >> {8 * part * k}).astype(np.uint{8 * part})",
                           _unsigned(part))
        elif args[1].startswith("{"):                    # several into one
            names = args[1].strip("{} ").replace(" ", "").split(",")
            part = nbytes // len(names)
            pieces = (f"({self.read(x, _unsigned(part))}.astype(np.uint{8 * nbytes}) "
                      f"<< {8 * part * k})" for k, x in enumerate(names))
            self.write(args[0], f"({' | '.join(pieces)})", _unsigned(nbytes))
        else:
            if parts[-1].startswith("b"):                # bits: in the type they have
                register = args[1] if args[1] in self.kernel.registers else args[0]
                dtype = self.kernel.registers[register]
            self.write(args[0], self.read(args[1], dtype), dtype)

    def op_cvta(self, parts, args):
        address = self.read(args[1], np.uint64)
        if "shared" in parts:
            sign = "-" if "to" in parts else "+"
            address = f"({address} {sign} np.uint64({SHARED_BASE}))"
        self.write(args[0], address, np.uint64)

    def op_cvt(self, parts, args):
        to, given, modes = TYPES[parts[-2]], TYPES[parts[-1]], parts[1:-2]
        value, name = self.read(args[1], given), _name(to)
        floats = np.dtype(given).kind == "f", np.dtype(to).kind == "f"
        if "ftz" in modes and given is np.float32:
            value = f"ftz({value})"
        if not floats[0]:
            if floats[1] and "rn" not in modes:
                raise PTXError(f"this machine does not know {'.'.join(parts)}")
            value = f"{value}.astype(np.{name})"
        elif not floats[1]:
            if "rzi" not in modes:
                raise PTXError(f"this machine does not know {'.'.join(parts)}")
            value = f"to_integer({value}, np.{name})"
        else:
            for mode, function in (("rmi", "floor"), ("rni", "rint"), ("rzi", "trunc")):
                if mode in modes:
                    value = f"np.{function}({value})"
            narrows = to is np.float16 and given is np.float32
            value = f"narrow16({value})" if narrows else f"{value}.astype(np.{name})"
            value = self.result(value, modes, to)
        self.write(args[0], value, to)

    # -- memory ----------------------------------------------------------------------------------
    def address(self, operand: str) -> str:
        base, _, offset = operand.replace(" ", "").strip("[]").partition("+")
        text = self.read(base, np.uint64)
        return f"({text} + np.uint64({int(offset) & (2 ** 64 - 1)}))" if offset else text

    @staticmethod
    def _space(parts) -> str:
        return next((p for p in parts[1:] if p in ("param", "global", "shared", "local", "const")),
                    "generic")

    def op_ld(self, parts, args):
        space, dtype = self._space(parts), TYPES[parts[-1]]
        if space == "param":
            self.write(args[0], f"P['{args[1].strip('[] ')}']", dtype)
            return
        targets = args[0].strip("{} ").replace(" ", "").split(",")
        self.lines.append(f"got = M.load('{space}', {self.address(args[1])}, "
                          f"np.{_name(dtype)}, {len(targets)}, idx, n)")
        for k, target in enumerate(targets):
            self.write(target, f"got[{k}]", dtype)

    def op_st(self, parts, args):
        space, dtype = self._space(parts), TYPES[parts[-1]]
        values = [self.read(x, dtype) for x in args[1].strip("{} ").replace(" ", "").split(",")]
        self.lines.append(f"M.store('{space}', {self.address(args[0])}, ({', '.join(values)},), "
                          f"np.{_name(dtype)}, idx, n)")
