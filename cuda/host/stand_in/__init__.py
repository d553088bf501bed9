"""A stand-in for the part of CuPy that hpcgcn uses, on a machine without a GPU.

Same names, stricter manners: kernels are the project's own .cu files run by ../cuda_host.h, streams
are lazy, device arrays cannot be touched by host code, and every launch is checked against the
kernel's signature and the limits of a device. Chosen by HPCGCN_CUDA_STAND_IN=1 and by nothing else;
settings.py lists the other variables.
"""

from __future__ import annotations

import hashlib
import socket
from types import SimpleNamespace

from . import arrays, capture, cublas, modules, nccl, nvrtc, settings, streams
from .arrays import asarray, empty, ndarray, zeros
from .modules import RawModule

__version__ = "stand-in"


class Device:
    """cupy.cuda.Device"""

    def __init__(self, device: int):
        if not 0 <= device < settings.device_count():
            raise ValueError(f"no device {device}: there are {settings.device_count()}")
        self.id = device

    def use(self):
        return self


def _properties(device: int) -> dict:
    uuid = hashlib.sha256(f"{socket.gethostname()} {device}".encode()).digest()[:16]
    architecture = settings.architecture() or 80
    return {"name": b"stand-in (no GPU: kernels run on the CPU)", "uuid": uuid,
            "major": architecture // 10, "minor": architecture % 10,
            "totalGlobalMem": settings.memory_limit(), "l2CacheSize": 40 << 20}


def get_default_memory_pool():
    return arrays.POOL


runtime = SimpleNamespace(
    getDeviceCount=settings.device_count,
    free=lambda ptr: None,
    getDeviceProperties=_properties,
    memGetInfo=lambda: (settings.memory_limit() - arrays.POOL.used_bytes(),
                        settings.memory_limit()),
    streamCaptureModeThreadLocal=capture.MODE_THREAD_LOCAL,
)
cuda = SimpleNamespace(Device=Device, Event=streams.Event, Graph=capture.Graph,
                       Stream=streams.Stream, runtime=runtime,
                       alloc_pinned_memory=arrays.alloc_pinned_memory,
                       get_cublas_handle=lambda: cublas.HANDLE,
                       memory=SimpleNamespace(OutOfMemoryError=arrays.OutOfMemoryError))
cublas_calls = cublas

__all__ = ["RawModule", "asarray", "cublas", "cublas_calls", "cuda", "empty",
           "get_default_memory_pool", "modules", "nccl", "ndarray", "nvrtc", "zeros"]
