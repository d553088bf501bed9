"""PTX text: the parameters, registers and shared memory of a kernel, and its basic blocks."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import numpy as np

TYPES = {"u8": np.uint8, "s8": np.int8, "b8": np.uint8, "u16": np.uint16, "s16": np.int16,
         "b16": np.uint16, "u32": np.uint32, "s32": np.int32, "b32": np.uint32, "u64": np.uint64,
         "s64": np.int64, "b64": np.uint64, "f32": np.float32, "f64": np.float64,
         "f16": np.float16, "pred": np.bool_}
SPECIAL = {f"%{a}.{b}" for a in ("tid", "ntid", "ctaid", "nctaid") for b in "xyz"} | {"%laneid"}

MEETING = re.compile(r"(bar|barrier|shfl|vote)\.")
JUMP = re.compile(r"(@\S+ )?(bra|ret|exit)\b")
REGISTER = re.compile(r"%[A-Za-z]\w*(?:\.[xyz])?")


class PTXError(Exception):
    """A kernel did what a device would not define, or uses what this machine does not know."""


def kernel(path, name: str) -> Kernel:
    """A kernel of a PTX file, translated; the same object for the same kernel."""
    return _kernel(str(path), name)


@cache
def _kernel(path: str, name: str) -> Kernel:
    return Kernel(Path(path).read_text(), name)


class Kernel:
    """An entry of a PTX module."""

    def __init__(self, text: str, name: str):
        text = re.sub(r"/\*.*?\*/", "", re.sub(r"//[^\n]*", "", text), flags=re.DOTALL)
        found = re.search(rf"\.entry\s+{re.escape(name)}\s*\(", text)
        if not found:
            raise PTXError(f"no entry {name}")
        self.name = name
        close = text.index(")", found.end())
        self.parameters = _parameters(text[found.end():close])
        body = _body(text, text.index("{", close))
        self.shared, self.static_shared = _shared_memory(text[:found.start()], body)
        body = _rename_temporaries(body)
        self.registers = _registers(body)
        self.blocks, self.labels = _basic_blocks(body)
        self.next_blocks = [self._successors(k) for k in range(len(self.blocks))]
        self.live_out = _live_out(self.blocks, self.next_blocks)
        from .translate import translate
        self.code = [translate(self, k) for k in range(len(self.blocks))]

    @property
    def signature(self) -> list[str]:
        """NumPy's letter and size of each parameter."""
        return [np.dtype(TYPES[kind]).str[1:] for kind, _ in self.parameters]

    def _successors(self, number: int) -> list[int]:
        block = self.blocks[number]
        jump = JUMP.match(block[-1]) if block else None
        if jump is None:
            return [number + 1]
        after = [number + 1] if jump.group(1) else []
        if jump.group(2) == "bra":
            after.append(self.labels[block[-1].split()[-1]])
        return after


def _parameters(text: str) -> list[tuple[str, str]]:
    """(type, name) of each."""
    return re.findall(r"\.param\s+\.(\w+)\s+(?:\.ptr\s+(?:\.\w+\s+(?:\d+\s+)?)*)?(\w+)", text)


def _body(text: str, begin: int) -> str:
    depth = 0
    for end in range(begin, len(text)):
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        if depth == 0:
            return text[begin + 1:end]
    raise PTXError("a body without an end")


def _shared_memory(module: str, body: str) -> tuple[dict[str, int], int]:
    """Where each shared array begins, and the bytes of all but the one sized at launch, which
    comes last."""
    pattern = r"(\.extern\s+)?\.shared\s+\.align\s+(\d+)\s+\.b8\s+(\w+)\[(\d*)\]"
    offsets, end, at_launch = {}, 0, None
    for scope in (module, body):
        for external, alignment, name, size in re.findall(pattern, scope):
            if external:
                at_launch = name
            elif name not in offsets and re.search(rf"\b{re.escape(name)}\b", body):
                offsets[name] = -(-end // int(alignment)) * int(alignment)
                end = offsets[name] + int(size)
    end = -(-end // 16) * 16
    if at_launch:
        offsets[at_launch] = end
    return offsets, end


def _rename_temporaries(body: str) -> str:
    """`{ .reg .b32 tmp; mov.b64 {...}; }`, a scope of one instruction: give tmp a register's
    name."""
    return re.sub(r"\{\s*\.reg\s+\.b(\d+)\s+tmp\s*;([^;]*;)\s*\}",
                  lambda m: re.sub(r"\btmp\b", f"%tmp{m.group(1)}", m.group(2)), body)


def _registers(body: str) -> dict[str, type]:
    def stored(kind):                # integers of a size are one type, as their bits are
        return TYPES[kind] if kind in ("pred", "f32", "f64") else TYPES[f"u{kind[1:]}"]

    registers: dict[str, type] = {"%tmp16": np.uint16, "%tmp32": np.uint32}
    for kind, prefix, count in re.findall(r"\.reg\s+\.(\w+)\s+%(\w+)<(\d+)>\s*;", body):
        registers.update({f"%{prefix}{k}": stored(kind) for k in range(int(count))})
    registers.update({name: stored(kind)
                      for kind, name in re.findall(r"\.reg\s+\.(\w+)\s+(%\w+)\s*;", body)})
    return registers


def _basic_blocks(body: str) -> tuple[list[list[str]], dict[str, int]]:
    """Instructions, cut at labels, behind jumps, and on both sides of a meeting."""
    body = re.sub(r"^\s*\.(reg|shared|pragma|loc|file)[^;]*;", "", body, flags=re.MULTILINE)
    blocks: list[list[str]] = [[]]
    labels: dict[str, int] = {}
    for part in re.split(r"(\$?\w+:(?!:)|;)", body):
        text = part.strip()
        if not re.match(r"(mov|ld|st|@|shfl)", text):
            text = text.strip("{}").strip()
        if not text or text == ";":
            continue
        if re.fullmatch(r"\$?\w+:", text):
            if blocks[-1]:
                blocks.append([])
            labels[text[:-1]] = len(blocks) - 1
            continue
        if MEETING.match(text) and blocks[-1]:
            blocks.append([])
        blocks[-1].append(" ".join(text.split()))
        if MEETING.match(text) or JUMP.match(text):
            blocks.append([])
    return blocks, labels


def written_and_read(instruction: str) -> tuple[set[str], set[str]]:
    """The registers an instruction sets for certain, and those whose value it needs."""
    guard = re.match(r"@!?(%\w+) ", instruction)
    operation, _, rest = instruction[guard.end() if guard else 0:].partition(" ")
    operands = split(rest)
    writes_first = operands and not operation.startswith(("st", "bra", "bar", "ret", "exit"))
    written = set(REGISTER.findall(operands[0])) if writes_first else set()
    read = set(REGISTER.findall(" ".join(operands[1:] if writes_first else operands)))
    return written, read | ({guard.group(1)} if guard else set())


def _live_out(blocks, next_blocks) -> list[set[str]]:
    """Per block the registers that some later block reads: the others need not be kept."""
    needs, sets = [], []
    for block in blocks:
        need: set[str] = set()
        known: set[str] = set()
        for instruction in block:
            written, read = written_and_read(instruction)
            need |= read - known
            known |= written
        needs.append(need)
        sets.append(known)
    live_in = [set(need) for need in needs]
    changed = True
    while changed:
        changed = False
        for k in reversed(range(len(blocks))):
            out = set().union(*(live_in[n] for n in next_blocks[k] if n < len(blocks)))
            now = needs[k] | (out - sets[k])
            changed |= now != live_in[k]
            live_in[k] = now
    return [set().union(*(live_in[n] for n in after if n < len(blocks)))
            for after in next_blocks]


def split(text: str) -> list[str]:
    """Operands, at commas outside brackets."""
    parts, depth, part = [], 0, ""
    for letter in text:
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            parts.append(part.strip())
            part = ""
        else:
            part += letter
    return [*parts, part.strip()] if part.strip() else parts
