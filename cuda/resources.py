"""Compile every kernel for real, on a machine without a GPU: NVRTC to machine code, with what ptxas
says about it.

    python cuda/resources.py  compile for all architectures, write RESOURCES.md beside this file

Needs cupy-cuda12x and nvidia-cuda-nvrtc-cu12 (the extra `cuda-test`); takes about a minute on two
cores.
"""

from __future__ import annotations

import multiprocessing
import re
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from hpcgcn.backend.cuda_compile import Program, Target, compile_program
from hpcgcn.backend.cuda_device import SOURCES
from hpcgcn.backend.cuda_kernels import MODULES

ARCHITECTURES = (70, 80, 90, 100)
TABLE = Path(__file__).resolve().parent / "RESOURCES.md"


@dataclass(frozen=True)
class Usage:
    """What one kernel needs on one architecture."""

    registers: int
    spilled_bytes: int
    stack_bytes: int
    shared_bytes: int                # static; epilogue_backward asks for more at launch


def nvrtc_version() -> str:
    from cupy_backends.cuda.libs import nvrtc
    return ".".join(map(str, nvrtc.getVersion()))


def compile_module(file: str, names: tuple[str, ...],
                   architecture: int) -> tuple[dict[str, Usage], Program]:
    """Machine code for one architecture, with the flags of a run.

    Returns the usage of each kernel by name expression, and all that NVRTC made.
    """
    from cupy_backends.cuda.libs import nvrtc
    program = compile_program(nvrtc, (SOURCES / file).read_text(), file, names,
                              Target(architecture), ("--ptxas-options=-v",))
    usage = parse(program.log)
    return {name: usage[program.names[name]] for name in names}, program


PATTERNS = (r"Used (\d+) registers", r"(\d+) bytes spill stores", r"(\d+) bytes stack frame",
            r"(\d+) bytes smem")


def _number(pattern: str, text: str) -> int:
    match = re.search(pattern, text)
    return int(match.group(1)) if match else 0


def parse(log: str) -> dict[str, Usage]:
    """ptxas -v, by mangled name."""
    found = {}
    for part in log.split("Compiling entry function '")[1:]:
        found[part[:part.index("'")]] = Usage(*(_number(pattern, part) for pattern in PATTERNS))
    return found


def _task(arguments):
    file, names, architecture = arguments
    return architecture, compile_module(file, names, architecture)[0]


def compile_all(architectures=ARCHITECTURES) -> dict[tuple[str, int], Usage]:
    """Usage of every kernel on every architecture."""
    tasks = [(file, names, architecture) for architecture in architectures
             for file, names in MODULES]
    result = {}
    # Fresh processes, not forks: a process that calls this may have threads of MPI or BLAS.
    with ProcessPoolExecutor(max_workers=2,
                             mp_context=multiprocessing.get_context("spawn")) as pool:
        for architecture, usage in pool.map(_task, tasks):
            result.update({(name, architecture): u for name, u in usage.items()})
    return result


def table(usage: dict[tuple[str, int], Usage], version: str) -> str:
    """The page: registers a thread and static shared memory, kernel by kernel."""
    spilled = sorted({name for (name, _), u in usage.items() if u.spilled_bytes or u.stack_bytes})
    lines = ["# What the kernels need", "",
             f"Written by `python cuda/resources.py` with NVRTC {version}; not edited by hand. "
             "Registers per thread and static", "shared memory per block, as ptxas reports them. "
             + (f"Spills or local memory: {', '.join(spilled)}." if spilled
                else "No kernel spills or uses local memory."), "",
             "| kernel | " + " | ".join(f"sm_{a}" for a in ARCHITECTURES) + " | shared (bytes) |",
             "|---|" + "---:|" * (len(ARCHITECTURES) + 1)]
    for file in dict.fromkeys(file for file, _ in MODULES):
        lines.append(f"| **{file}** |" + " |" * (len(ARCHITECTURES) + 1))
        for name in (n for f, names in MODULES if f == file for n in names):
            registers = " | ".join(str(usage[name, a].registers) for a in ARCHITECTURES)
            lines.append(f"| `{name}` | {registers} | "
                         f"{max(usage[name, a].shared_bytes for a in ARCHITECTURES)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    TABLE.write_text(table(compile_all(), nvrtc_version()))
    print(f"wrote {TABLE.name}")
