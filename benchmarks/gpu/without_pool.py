"""Run a module without CuPy's memory pool: each array is an allocation of its own, whose ends
compute-sanitizer knows.

    python without_pool.py pytest tests/operations -k cuda-gpu
"""

from __future__ import annotations

import runpy
import sys

from hpcgcn.backend.cuda_device import load_cupy, uses_stand_in

if __name__ == "__main__":
    if not uses_stand_in():
        load_cupy().cuda.set_allocator(None)
    sys.argv[:] = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
