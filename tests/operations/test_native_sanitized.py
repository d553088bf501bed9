"""The native kernels under AddressSanitizer and UndefinedBehaviorSanitizer: the whole suite on a
build of its own."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

# a compilation and a suite, perhaps beside others
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = pathlib.Path(__file__).parents[2]
SANITIZERS = "-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer"
SUITE = sorted(path for path in (ROOT / "tests" / "operations").glob("test_*.py")
               if path.name != pathlib.Path(__file__).name)


def runtime_library(compiler: str) -> str:
    """The sanitizer's run-time library, which must be loaded before Python; empty where the
    compiler has none."""
    found = subprocess.run([compiler, "-print-file-name=libasan.so"], capture_output=True,
                           text=True).stdout.strip()
    return found if os.path.isabs(found) else ""


@pytest.fixture(scope="module")
def compiler() -> str:
    compiler = (os.environ.get("CC") or "gcc").split()[0]
    if shutil.which(compiler) is None:
        pytest.skip(f"no C compiler ({compiler}) here")
    if not runtime_library(compiler):
        pytest.skip(f"{compiler} has no AddressSanitizer")
    return compiler


@pytest.fixture(scope="module")
def library(compiler, tmp_path_factory) -> pathlib.Path:
    """The kernels compiled with both sanitizers."""
    target = tmp_path_factory.mktemp("sanitized")
    environment = os.environ | {"CC": compiler, "CFLAGS": SANITIZERS, "LDFLAGS": SANITIZERS,
                                "HPCGCN_OPTIMISE": "-O1"}
    built = subprocess.run([sys.executable, "setup.py", "-q", "build_ext", "--build-lib", target,
                            "--build-temp", target / "temporary"], cwd=ROOT, env=environment,
                           capture_output=True, text=True)
    found = list(target.rglob("_kernels*.so"))
    assert found, built.stderr
    return found[0]


def run_python(arguments, compiler, library):
    """Python with the sanitised kernels.

    Python itself leaks by design, so leaks are not looked for.
    """
    environment = os.environ | {
        "LD_PRELOAD": runtime_library(compiler), "ASAN_OPTIONS": "detect_leaks=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "HPCGCN_NATIVE_LIBRARY": str(library), "PYTHONPATH": str(ROOT), "PYTHONMALLOC": "malloc"}
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, env=environment,
                          capture_output=True, text=True)


def test_the_sanitizer_is_on(compiler, library):
    """A handle whose structure is changed behind the check's back must be caught, or the next test
    shows nothing."""
    script = ("import numpy as np; from hpcgcn.backend.native import NativeBackend\n"
              "backend = NativeBackend(threads=1, isa='plain')\n"
              "matrix = backend.csr(np.array([0, 1]), np.array([0], np.int32), 1)\n"
              "matrix.indices[0] = 50\n"
              "backend.spmm(matrix, np.ones((1, 4), np.float32), np.ones((1, 4), np.float32))\n")
    done = run_python(["-c", script], compiler, library)
    assert done.returncode != 0 and "heap-buffer-overflow" in done.stderr


@pytest.mark.timeout(600)
def test_the_suite_passes_under_the_sanitizers(compiler, library):
    chosen = "native and not gemm"              # the matrix product is BLAS's own
    done = run_python(["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", chosen, *SUITE],
                      compiler, library)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert " passed" in done.stdout
