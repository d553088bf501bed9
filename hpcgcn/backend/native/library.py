"""Finding and loading the compiled kernels.

HPCGCN_NATIVE_LIBRARY names another build of them (a sanitised one, say);
HPCGCN_ISA=plain|avx2|avx512 forces the instruction set level, which otherwise is the best that the
CPU has.
"""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import os

from hpcgcn.errors import BackendError, ConfigError

MODULE = "hpcgcn.backend.native._kernels"
LEVELS = ("plain", "avx2", "avx512")
# GNU OpenMP's threads spin for 300,000 turns after a loop, on cores that BLAS and MPI may want. Not
# measured yet.
SPIN_COUNT = "5000"
REMEDY = ("install a C compiler with OpenMP and Python's headers (Debian: gcc, python3-dev) and "
          "run `pip install --force-reinstall --no-deps` on hpcgcn again, or choose the "
          "`reference` backend")


def _load_file(path: str):
    loader = importlib.machinery.ExtensionFileLoader(MODULE, path)
    module = importlib.util.module_from_spec(importlib.machinery.ModuleSpec(MODULE, loader,
                                                                            origin=path))
    loader.exec_module(module)
    return module


@functools.cache
def kernels():
    """The extension module, loaded once.

    Raises BackendError with the remedy where it was not built.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPIN_COUNT)
    path = os.environ.get("HPCGCN_NATIVE_LIBRARY")
    try:
        return _load_file(path) if path else importlib.import_module(MODULE)
    except ImportError as error:
        raise BackendError(f"the native backend is not built here ({error}): {REMEDY}") from error


def available() -> tuple[bool, str]:
    """Whether the native backend can be used, and if not, why and how to get it."""
    try:
        kernels()
    except BackendError as error:
        return False, str(error)
    return True, ""


def levels() -> list[str]:
    """The instruction set levels that this CPU runs, best first."""
    return kernels().levels()


def choose_level(isa: str | None = None) -> str:
    """The level asked for by argument or HPCGCN_ISA, else the best one; refuses what this CPU
    cannot run."""
    level = isa or os.environ.get("HPCGCN_ISA")
    if not level:
        return levels()[0]
    if level not in LEVELS:
        raise ConfigError(f"HPCGCN_ISA={level} is not a level: use one of {', '.join(LEVELS)}, "
                          "or unset it")
    if level not in levels():
        raise BackendError(f"this CPU cannot run HPCGCN_ISA={level}: use one of "
                           f"{', '.join(levels())}, or unset it")
    return level
