"""Backends by name. Nothing is imported before it is asked for."""

from __future__ import annotations

from hpcgcn.errors import BackendError, ConfigError

BACKENDS = ("reference", "native", "cuda")
PRECISIONS = ("fp32", "tf32", "bf16")


def make_backend(name: str, dtype: str = "float32", threads: int = 1, local_rank: int = 0,
                 mpi: str = "staged", transport: str = "mpi", graphs: bool = False,
                 precision: str = "fp32"):
    """The backend `name` (auto: native if it was built, or reference).

    Returns (backend, note for the user or ""). local_rank: this rank's number on its host. Nothing
    here is collective: see `Backend.check_ranks`.
    """
    if dtype == "float64" and name not in ("auto", "reference"):
        raise ConfigError(f"dtype = 'float64' needs backend = 'reference', not '{name}'")
    note = ""
    if name == "auto":
        name, note = _default_backend(dtype)
    if name == "reference":
        import numpy as np

        from hpcgcn.backend.reference import ReferenceBackend
        return ReferenceBackend(np.dtype(dtype), precision), note
    if name == "native":
        from hpcgcn.backend.native import NativeBackend
        return NativeBackend(threads=threads), note
    if name == "cuda":
        from hpcgcn.backend.cuda import CudaBackend
        return CudaBackend(local_rank, mpi, transport, graphs, precision), note
    raise BackendError(f"no backend '{name}'")


def _default_backend(dtype: str) -> tuple[str, str]:
    if dtype == "float64":
        return "reference", ""
    from hpcgcn.backend.native import available
    usable, reason = available()
    return ("native", "") if usable else ("reference", "native kernels are not there "
                                                       f"({reason}); using the reference backend")
