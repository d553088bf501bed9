"""NVRTC's calls on a machine without a GPU, under CuPy's names.

By default "machine code" is a shared library that g++ makes of the .cu text through
../cuda_host.h. With HPCGCN_CUDA_STAND_IN_KERNELS=ptx-80 the real NVRTC compiles, with exactly the
flags of a device, and what is loaded is the PTX of that architecture, for the machine in ../ptx.
"""

from __future__ import annotations

import hashlib
import importlib
import itertools
import subprocess
import tempfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from . import settings

HEADERS = Path(__file__).resolve().parent.parent
FLAGS = ("-O1", "-g1", "-shared", "-fPIC", "-ffp-contract=off", "-fno-strict-aliasing",
         "-fno-gnu-unique", "-std=c++17",
         "-fvisibility=hidden", "-Wall", "-Wno-unknown-pragmas", "-Wno-class-memaccess")
IGNORED = ("-arch=", "-std=", "-ftz=false", "-prec-div=true", "-prec-sqrt=true", "-fmad=true")

WRAPPER = """#include "cuda_host.h"
alignas(16) thread_local float dynamic_shared[SHARED_LIMIT / sizeof(float)];
#line 1 "{name}"
{code}
static const cuda_host::Kernel kernels[] = {{{kernels}}};
static const char *const names[] = {{{names}}};
#define EXPORT extern "C" __attribute__((visibility("default")))
EXPORT int cuda_host_find(const char *name) {{
    for (int k = 0; k < {count}; k++) if (!strcmp(names[k], name)) return k;
    return -1;
}}
EXPORT const char *cuda_host_signature(int number) {{ return kernels[number].signature.c_str(); }}
EXPORT const char *cuda_host_launch(int number, const unsigned *grid, const unsigned *block,
                                    unsigned shared_bytes, void **args, int order,
                                    unsigned long long seed) {{
    return cuda_host::launch(kernels[number], grid, block, shared_bytes, args, order, seed);
}}
"""


class NVRTCError(RuntimeError):
    """The compiler refused the source."""


@dataclass
class _Program:
    source: str
    name: str
    headers: dict[bytes, bytes]
    expressions: list[str] = field(default_factory=list)
    image: bytes = b""
    lowered: dict[str, str] = field(default_factory=dict)
    log: str = ""


_programs: dict[int, _Program] = {}
_numbers = itertools.count(1)


@cache
def _real():
    return importlib.import_module("cupy_backends.cuda.libs.nvrtc")


def _lower(name: str) -> str:
    """Unlike the expression, as a mangled name is."""
    return "_host_" + name.replace(" ", "")


def getVersion() -> tuple:
    """All that the output depends on beside what a caller gives."""
    if settings.architecture():
        return ("ptx", *_real().getVersion())
    return "g++", _host_toolchain(settings.sanitizers())


@cache
def _host_toolchain(sanitizers: str) -> str:
    version = subprocess.run(["g++", "--version"], capture_output=True, text=True,
                             check=True).stdout.splitlines()[0]
    texts = (p.read_text() for p in sorted(HEADERS.glob("*.h")))
    return hashlib.sha256("\0".join((version, sanitizers, WRAPPER, *FLAGS,
                                     *texts)).encode()).hexdigest()


def getSupportedArchs() -> tuple:
    return _real().getSupportedArchs() if settings.architecture() else (70, 80, 90, 100)


def createProgram(src, name, headers, include_names) -> int:
    number = next(_numbers)
    _programs[number] = _Program(src, name, dict(zip(include_names, headers)))
    return number


def addNameExpression(prog, name):
    _programs[prog].expressions.append(name)


def compileProgram(prog, options):
    program = _programs[prog]
    if settings.architecture():
        _compile_to_ptx(program, options)
        return
    unknown = [o for o in options if not o.startswith(IGNORED)]
    if unknown:
        raise ValueError(f"the stand-in does not know the compiler options {unknown}")
    _compile_with_gcc(program)


def _compile_to_ptx(program: _Program, options):
    nvrtc = _real()
    real = nvrtc.createProgram(program.source, program.name, list(program.headers.values()),
                               list(program.headers))
    try:
        for expression in program.expressions:
            nvrtc.addNameExpression(real, expression)
        try:
            nvrtc.compileProgram(real, options)
        except nvrtc.NVRTCError as error:
            program.log = nvrtc.getProgramLog(real)
            raise NVRTCError(str(error)) from None
        program.image = nvrtc.getPTX(real)
        program.lowered = {e: nvrtc.getLoweredName(real, e) for e in program.expressions}
    finally:
        nvrtc.destroyProgram(real)


def _compile_with_gcc(program: _Program):
    kernels = ", ".join(f"cuda_host::describe(&{name})" for name in program.expressions)
    names = ", ".join(f'"{_lower(name)}"' for name in program.expressions)
    text = WRAPPER.format(name=program.name, code=program.source, kernels=kernels, names=names,
                          count=len(program.expressions))
    sanitizers = settings.sanitizers()
    more = ((f"-fsanitize={sanitizers}", "-fno-sanitize-recover=all") if sanitizers else ())
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name, header in program.headers.items():
            (folder / name.decode()).write_bytes(header)
        (folder / "module.cpp").write_text(text)
        done = subprocess.run(["g++", *FLAGS, *more, f"-I{HEADERS}", f"-I{folder}",
                               str(folder / "module.cpp"), "-o", str(folder / "module.so")],
                              capture_output=True, text=True)
        program.log = done.stderr
        if done.returncode:
            raise NVRTCError("NVRTC_ERROR_COMPILATION")
        program.image = (folder / "module.so").read_bytes()
    program.lowered = {name: _lower(name) for name in program.expressions}


def getCUBIN(prog) -> bytes:
    return _programs[prog].image


def getPTX(prog) -> bytes:
    return _programs[prog].image if settings.architecture() else b""


def getLoweredName(prog, name) -> str:
    return _programs[prog].lowered[name]


def getProgramLog(prog) -> str:
    return _programs[prog].log


def destroyProgram(prog):
    del _programs[prog]
