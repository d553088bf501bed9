"""The common suite once more with AddressSanitizer and UndefinedBehaviorSanitizer in the
kernels."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.slow


def sanitized(*arguments, timeout=280):
    """Run Python with the sanitizers' libraries loaded first, as a shared library that uses them
    needs."""
    libraries = [subprocess.run(["g++", f"-print-file-name={name}"], capture_output=True,
                                text=True).stdout.strip() for name in ("libasan.so", "libubsan.so")]
    if not all(os.path.isabs(path) for path in libraries):
        pytest.skip("g++ has no sanitizer libraries here")
    env = {**os.environ, "LD_PRELOAD": ":".join(libraries), "HPCGCN_CUDA_STAND_IN": "1",
           "HPCGCN_CUDA_STAND_IN_SANITIZE": "address,undefined",
           # Python itself leaks on purpose, and its stacks are not the emulation's.
           "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0",
           "UBSAN_OPTIONS": "print_stacktrace=1"}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=env,
                          timeout=timeout, cwd=TESTS.parent)


@pytest.mark.timeout(600)
def test_the_suite_passes_under_sanitizers(stand_in):
    files = sorted((TESTS / "operations").glob("test_*.py"))
    done = sanitized("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *files,
                     TESTS / "cuda" / "test_shapes.py", "-k",
                     "(cuda-aligned or cuda-descending or test_shapes) and not ascending and not "
                     "shuffled", timeout=580)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "passed" in done.stdout


MISTAKES = {
    "past the end of an array": ("out[n] = 1.0f;", "heap-buffer-overflow"),
    "before its start": ("out[-1] = 1.0f;", "heap-buffer-overflow"),
    "past shared memory": ("dynamic_shared[n] = 1.0f;", "use-after-poison"),
    "a vector that is not aligned": ("*(float4 *)(out + 1) = float4();", "misaligned address"),
    "a signed overflow": ("out[0] = (float)(n + 2147483647);", "signed integer overflow"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_sanitizers_see(stand_in, mistake):
    statement, report = MISTAKES[mistake]
    code = f"""
import sys; sys.path[:0] = [{str(TESTS.parent)!r}, {str(TESTS / "cuda")!r}]
import numpy as np
from hpcgcn.backend.cuda_device import load_cupy
cupy = load_cupy()
stream = cupy.cuda.Stream(non_blocking=True).use()
source = ("__global__ void wrong(float *out, int n) "
          "{{ extern __shared__ float dynamic_shared[]; {statement} }}")
from probe_module import load_module
kernel = load_module(cupy, source, ("wrong",)).get_function("wrong")
kernel((1,), (1,), (cupy.zeros((8,), np.float32), np.int32(8)), shared_mem=32)
stream.synchronize()
"""
    done = sanitized("-c", code, timeout=120)
    assert done.returncode != 0 and report in done.stderr, done.stderr[-2000:]
