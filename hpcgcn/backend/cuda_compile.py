"""From cuda/*.cu to machine code: NVRTC called directly, with one list of flags, kept in a folder.

CuPy's own compilation appends flags after the caller's (`-ftz=true`, and in NVRTC the last one
wins), so nothing is compiled through it: it is handed a finished file. What runs on a device, what
the tests execute and what cuda/RESOURCES.md lists are the output of `compile_program` here.

The folder is private to the user and on a disk of the node. A file in it is named by a hash of all
that it depends on: sources, flags, architecture, compiler, kernels.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib
import json
import logging
import os
import stat
import struct
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from hpcgcn.backend.cuda_device import SOURCES
from hpcgcn.errors import BackendError

log = logging.getLogger(__name__)

CACHE = "HPCGCN_CUDA_CACHE"
OLDEST = 70                      # shuffles and barriers are those of Volta and later

# All that NVRTC is told beside the architecture. The first four are its defaults, said aloud:
# subnormal numbers stay, division and square root are rounded correctly, a * b + c may be fused
# (codecs ask for single roundings by name).
FLAGS = ("-ftz=false", "-prec-div=true", "-prec-sqrt=true", "-fmad=true", "-std=c++17")


@dataclass(frozen=True)
class Target:
    """What to compile for: machine code of an architecture, or PTX that the driver translates."""

    architecture: int                # 80 for compute capability 8.0
    kind: str = "cubin"              # or "ptx"

    @property
    def flag(self) -> str:
        """As NVRTC takes it."""
        return f"-arch={'sm' if self.kind == 'cubin' else 'compute'}_{self.architecture}"


@dataclass(frozen=True)
class Program:
    """Compiled kernels: the image that a device loads, their names in it, PTX, compiler's words."""

    image: bytes
    names: dict[str, str]            # by name expression: the name in the image
    ptx: str
    log: str


def load_nvrtc(cupy):
    """The calls of NVRTC: those of the stand-in where CuPy is one, else of CuPy's bindings."""
    if hasattr(cupy, "nvrtc"):
        return cupy.nvrtc
    return importlib.import_module("cupy_backends.cuda.libs.nvrtc")


def choose_target(supported: tuple[int, ...], capability: int) -> Target:
    """What this compiler can make that a device of this compute capability runs.

    Machine code runs on later devices of the same generation; a generation that the compiler does
    not know gets PTX.
    """
    usable = [a for a in supported if OLDEST <= a <= capability]
    if capability < OLDEST or not usable:
        raise BackendError(f"the GPU has compute capability {capability / 10:.1f}; the kernels "
                           f"need {OLDEST / 10:.1f} or later and a CUDA compiler that knows it "
                           f"(this one: {', '.join(f'{a / 10:.1f}' for a in supported)})")
    best = max(usable)
    return Target(best, "cubin" if best // 10 == capability // 10 else "ptx")


def headers() -> tuple[list[bytes], list[bytes]]:
    """Texts and names of what the sources include: no folder of this machine gets into a flag."""
    paths = sorted(SOURCES.glob("*.cuh"))
    return [path.read_bytes() for path in paths], [path.name.encode() for path in paths]


def compile_program(nvrtc, source: str, name: str, expressions, target: Target,
                    more_flags=()) -> Program:
    """Compile a text; the flags are FLAGS, the architecture, and what a test wants to add."""
    program = nvrtc.createProgram(source, name, *headers())
    try:
        for expression in expressions:
            nvrtc.addNameExpression(program, expression)
        try:
            nvrtc.compileProgram(program, (*FLAGS, target.flag, *more_flags))
        except nvrtc.NVRTCError as error:
            raise BackendError(f"{name} for {target.flag[6:]}: {error}\n"
                               f"{nvrtc.getProgramLog(program)}") from None
        ptx = nvrtc.getPTX(program)
        image = complete(nvrtc.getCUBIN(program)) if target.kind == "cubin" else ptx
        return Program(image, {e: nvrtc.getLoweredName(program, e) for e in expressions},
                       ptx.decode(), nvrtc.getProgramLog(program))
    finally:
        nvrtc.destroyProgram(program)


def complete(cubin: bytes) -> bytes:
    """The ELF file that NVRTC made.

    CuPy's getCUBIN takes the last byte for the end of a string and drops it. In memory Python's
    terminating zero replaces it; a file would be short. The ELF header says how long it must be,
    and the byte, the highest of a 64-bit alignment, is zero.
    """
    if cubin[:4] != b"\x7fELF":
        return cubin
    segments, sections = struct.unpack_from("<QQ", cubin, 32)
    segment_bytes, n_segments, section_bytes, n_sections = struct.unpack_from("<HHHH", cubin, 54)
    length = max(segments + segment_bytes * n_segments, sections + section_bytes * n_sections)
    if length - len(cubin) not in (0, 1) and length > len(cubin):
        raise BackendError(f"NVRTC's machine code has {len(cubin)} of {length} bytes")
    return cubin.ljust(length, b"\0")


# -- the folder ------------------------------------------------------------------------------------
@cache
def cache_folder() -> Path:
    """Where compiled kernels are kept: HPCGCN_CUDA_CACHE, or a private folder on the node's
    disk."""
    chosen = os.environ.get(CACHE)
    if chosen:
        path = Path(chosen)
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        return path
    scratch = Path(os.environ.get("SLURM_TMPDIR") or tempfile.gettempdir())
    path = scratch / f"hpcgcn-kernels-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    if is_private(path):
        return path
    fresh = Path(tempfile.mkdtemp(prefix="hpcgcn-kernels-", dir=scratch))
    log.warning("%s is not a private folder of this user (chmod 700, or set %s): kernels are "
                "compiled again in %s", path, CACHE, fresh)
    return fresh


def is_private(path: Path) -> bool:
    """Is this a folder of this user, not a link, that nobody else can write to or read?

    Others may write to a temporary folder; code that they left there would run in our name.
    """
    facts = path.lstat()
    return (stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.getuid()
            and not facts.st_mode & 0o077)


def compiled(nvrtc, file: str, expressions: tuple[str, ...],
             target: Target) -> tuple[Path, dict[str, str]]:
    """A file of kernels that a device can load, and their names in it; compiled once per node."""
    source = (SOURCES / file).read_text()
    return compiled_text(nvrtc, source, file, expressions, target)


def compiled_text(nvrtc, source: str, name: str, expressions, target: Target):
    """The same for a text."""
    parts = (source, *map(bytes.decode, headers()[0]), *FLAGS, target.flag, target.kind,
             *map(str, nvrtc.getVersion()), *expressions)
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
    image = cache_folder() / f"{key}.{target.kind}"
    names = image.with_suffix(".json")
    if not image.exists():
        with _only_one(image):       # the other ranks of the node wait for the first
            if not image.exists():
                program = compile_program(nvrtc, source, name, expressions, target)
                _write(names, json.dumps(program.names).encode())
                _write(image, program.image)
    return image, json.loads(names.read_text())


@contextlib.contextmanager
def _only_one(path: Path):
    with path.with_suffix(".lock").open("w") as lock:
        with contextlib.suppress(OSError):       # a file system without locks: all compile
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _write(path: Path, data: bytes):
    """Whole or not at all."""
    handle, scratch = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    os.replace(scratch, path)
