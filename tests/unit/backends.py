"""The backends that the one suite of operations runs over. A new one is one more line in BACKENDS."""

from __future__ import annotations

import numpy as np
import pytest

from hpcgcn.backend.base import Backend
from hpcgcn.backend.reference import ReferenceBackend


def native(isa: str) -> Backend:
    """The native backend at one instruction set level, or a skip that says why it cannot run here."""
    from hpcgcn.backend import native as module
    usable, reason = module.available()
    if not usable:
        pytest.skip(reason)
    if isa not in module.levels():
        pytest.skip(f"this CPU has no {isa}")
    return module.NativeBackend(threads=2, isa=isa)


BACKENDS = {
    "reference-float32": lambda: ReferenceBackend(np.float32),
    "reference-float64": lambda: ReferenceBackend(np.float64),
    "native-plain": lambda: native("plain"),
    "native-avx2": lambda: native("avx2"),
    "native-avx512": lambda: native("avx512"),
}
