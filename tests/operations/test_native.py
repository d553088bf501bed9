"""What only the native backend promises: independence of threads, levels and tiles, and refusal of
wrong arguments."""

import os
import pathlib
import subprocess
import sys
import threading

import numpy as np
import pytest

from hpcgcn import philox
from hpcgcn.backend import native
from hpcgcn.errors import ConfigError

usable, reason = native.available()
pytestmark = pytest.mark.skipif(not usable, reason=reason)
KEY = philox.key(1, 2, 3, philox.DROPOUT)
ROOT = pathlib.Path(__file__).parents[2]


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def skewed_graph(n=900, seed=0):
    """Degrees from 0 to 3000, repeated indices, not sorted."""
    rng = np.random.default_rng(seed)
    degrees = (40 / (1 - rng.random(n)) ** 0.7).astype(np.int64).clip(0, 3000)
    degrees[rng.random(n) < 0.1] = 0
    indptr = np.concatenate([[0], np.cumsum(degrees)])
    return indptr, rng.integers(0, n, indptr[-1]).astype(np.int32)


@pytest.fixture(params=["plain", "avx2", "avx512"])
def isa(request):
    if request.param not in native.levels():
        pytest.skip(f"this CPU has no {request.param}")
    return request.param


def results(backend, width):
    """Every operation that is promised not to depend on threads, on arrays large enough to be
    split."""
    n = 900
    indptr, indices = skewed_graph(n)
    x, y, gamma, ids = (numbers(n, width), numbers(n, width, seed=1), numbers(width),
                        np.arange(n) * 5 + 2 ** 33)
    weights = numbers(len(indices), seed=2)
    matrix, dropped = backend.csr(indptr, indices, n,
                                  weights), backend.csr(indptr, indices, n, weights.copy())
    found = {name: np.zeros((n, width), np.float32)
             for name in ("spmm", "masked", "transposed", "drop", "dlogits")}
    backend.spmm(matrix, x, found["spmm"])
    backend.spmm(matrix, x, found["masked"], mask=np.maximum(y, 0), mask_scale=1.5, accumulate=True)
    backend.spmm_transposed_add(matrix, x, found["transposed"])
    backend.sparse_dropout(matrix, dropped, KEY, 30000, ids)
    backend.dropout(x, found["drop"], KEY, 30000, ids)
    found["entries"] = dropped.weights
    found["columns"] = np.zeros(width, np.float32)
    backend.column_sum_add(x, found["columns"])
    out, dy, xhat, rstd = (np.empty_like(x) for _ in range(4))
    rstd = np.empty(n, np.float32)
    backend.epilogue_forward(y.copy(), out, gamma, gamma, gamma, xhat, rstd, KEY, 20000, ids)
    sums = np.zeros((3, width), np.float32)
    backend.epilogue_backward(x, out, dy, 1.5, gamma, xhat, rstd, *sums)
    found.update(out=out, dy=dy, sums=sums)
    labels = np.random.default_rng(3).integers(-1, width, n).astype(np.int32)
    found["loss"] = np.float64(backend.softmax_cross_entropy(x, labels, 1.0, found["dlogits"]))
    targets = (x > 0).astype(np.uint8)
    found["sigmoid"] = np.float64(backend.sigmoid_cross_entropy(y, targets, np.ones(n, np.uint8),
                                                                1.0, dy.copy()))
    found["squares"] = np.float64(backend.square_sum(x))
    coded = np.zeros(n * (4 + width), np.uint8)
    backend.quantise(x, None, ids, 4, KEY, False, coded)
    found["coded"] = coded
    return found


@pytest.mark.parametrize("width", [1, 41, 130])
def test_no_result_depends_on_the_number_of_threads(isa, width):
    one = results(native.NativeBackend(threads=1, isa=isa), width)
    for threads in (2, 3):
        other = results(native.NativeBackend(threads=threads, isa=isa), width)
        for name, value in one.items():
            assert np.array_equal(value,
                                  other[name]), f"{name} differs between 1 and {threads} threads"


@pytest.mark.parametrize("kind", [np.float32, np.float16, np.uint16])
@pytest.mark.parametrize("masked", [False, True], ids=["all", "masked"])
@pytest.mark.parametrize("weighted", [False, True], ids=["ones", "weights"])
def test_gathering_from_compact_tiles_changes_no_bit(isa, kind, masked, weighted):
    n = 900
    indptr, indices = skewed_graph(n)
    for width in (1, 16, 41, 257):
        x, mask = numbers(n, width), np.maximum(numbers(n, width, seed=1), 0) if masked else None
        found = []
        for tile_bytes in (0, n * 128):                 # no tile, or tiles of 32 columns
            backend = native.NativeBackend(threads=2, isa=isa, tile_bytes=tile_bytes)
            matrix = backend.csr(indptr, indices, n,
                                 numbers(len(indices), seed=2) if weighted else None)
            held, out = np.empty((n, width), kind), numbers(n, width, seed=3)
            backend.convert(x, held)
            backend.spmm(matrix, held, out, rows=(5, n), accumulate=True, mask=mask, mask_scale=0.5)
            found.append(out)
        assert width == 1 or all(np.array_equal(found[0], other) for other in found[1:])
        np.testing.assert_allclose(found[0], found[1], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("weighted", [False, True], ids=["ones", "weights"])
def test_gathering_from_kept_tiles_changes_no_bit(isa, precision, weighted, monkeypatch):
    monkeypatch.setattr(native, "NEAR_BYTES", 0)
    n, first = 900, 37
    indptr, indices = skewed_graph(n - first)
    backend = native.NativeBackend(threads=2, isa=isa)
    matrix = backend.csr(indptr, indices, n - first,
                         numbers(len(indices), seed=2) if weighted else None)
    for width in (33, 41, 128, 257):
        x, plain, tiled = numbers(n, width), numbers(n - first, width,
                                                     seed=3), numbers(n - first, width, seed=3)
        store = backend.gather_store(x.shape, precision, reuse=100)
        assert isinstance(store, native.TiledRows)
        assert len(backend.gather_passes(store)) == -(-width // 32)
        for rows in ((500, n), (0, 500)):
            backend.store_rows(x, store, rows)
        held = x
        if precision == "bf16":
            held = np.empty(x.shape, np.uint16)
            backend.convert(x, held)
        for rows in ((0, 300), (300, n - first)):
            backend.spmm(matrix, held[first:], plain, rows=rows, accumulate=True)
            for part in backend.gather_passes(store[first:]):
                backend.spmm(matrix, part, tiled, rows=rows, accumulate=True)
        np.testing.assert_array_equal(plain, tiled)


def test_tiles_are_kept_only_where_they_pay():
    backend = native.NativeBackend(threads=1)
    assert isinstance(backend.gather_store((20_000, 128), "fp32", reuse=50), native.TiledRows)
    assert backend.gather_store((20_000, 128), "fp32",
                                reuse=2) is None, "each row is gathered about as often as copied"
    assert backend.gather_store((20_000, 32), "fp32",
                                reuse=50) is None, "a single tile is what x is already"
    assert backend.gather_store((100, 128), "fp32",
                                reuse=50) is None, "x is in the near cache by itself"
    assert backend.gather_store((100, 128), "bf16", reuse=50).dtype == np.uint16


def test_other_threads_run_during_a_call():
    backend = native.NativeBackend(threads=1, isa="plain")
    n_entries = 3_000_000
    matrix = backend.csr(np.array([0, n_entries]), np.zeros(n_entries, np.int32), 1)
    x, out, turns, done = numbers(1, 128), np.zeros((1, 128), np.float32), [0], threading.Event()

    def count():
        while not done.is_set():
            turns[0] += 1

    counter = threading.Thread(target=count)
    counter.start()
    progress = []
    # the system may not run the counter at once
    while len(progress) < 50 and max(progress, default=0) < 1000:
        before = turns[0]
        backend.spmm(matrix, x, out)
        progress.append(turns[0] - before)
    done.set()
    counter.join()
    assert max(progress) >= 1000, "calls hold the global interpreter lock"


@pytest.mark.parametrize("shape", [(1,), (3, 41), (1000, 7)])
def test_arrays_start_on_a_cache_line(shape):
    backend = native.NativeBackend(threads=1)
    for array in (backend.empty(shape), backend.zeros(shape), backend.empty(shape, np.uint16)):
        assert array.ctypes.data % 64 == 0 and array.flags.c_contiguous and array.shape == shape


def wrong_calls(backend):
    """Calls that must be refused before anything is written: (what is wrong, call)."""
    matrix = backend.csr(np.array([0, 1, 2]), np.array([0, 1], np.int32), 2)
    x, out, index = numbers(2, 3), numbers(2, 3), np.array([0, 1], np.int32)
    return {
        "x has too few rows": lambda: backend.spmm(matrix, x[:1], out),
        "out is narrower": lambda: backend.spmm(matrix, x, numbers(2, 2)),
        "rows past the end": lambda: backend.spmm(matrix, x, out, rows=(0, 3)),
        "tiles with too few rows": lambda: backend.spmm(
            matrix, native.TiledRows((1, 3), np.dtype(np.float32)), out),
        "tiles of another width": lambda: backend.spmm(
            matrix, native.TiledRows((2, 40), np.dtype(np.float32))[:2], out),
        "tiles that lack a row": lambda: backend.spmm(
            matrix, native.TiledRows((2, 3), np.dtype(np.float32))[1:], out),
        "mask of another shape": lambda: backend.spmm(matrix, x, out, mask=numbers(1, 3)),
        "an index outside": lambda: backend.gather_rows(x, np.array([0, 2], np.int32), out),
        "a negative index": lambda: backend.scatter_add_rows(x, np.array([0, -1], np.int32), out),
        "a column outside": lambda: backend.pack_columns(x, index, np.array([3], np.int32),
                                                         numbers(2, 1)),
        "not contiguous": lambda: backend.gather_rows(numbers(2, 6)[:, ::2], index, out),
        "int64 indices": lambda: backend.gather_rows(x, index.astype(np.int64), out),
        "float64 values": lambda: backend.axpby(1.0, x.astype(np.float64), 0.0, None, out),
        "a label too large": lambda: backend.softmax_cross_entropy(x, np.array([0, 3], np.int32),
                                                                   1.0, out),
        "bits that are no code": lambda: backend.quantise(x, None, np.arange(2), 3, KEY, False,
                                                          np.zeros(99, np.uint8)),
        "too short for the code": lambda: backend.quantise(x, None, np.arange(2), 8, KEY, False,
                                                           np.zeros(9, np.uint8)),
        "column outside the matrix": lambda: backend.csr(np.array([0, 1]), np.array([2], np.int32),
                                                         2),
        "indptr that falls": lambda: backend.csr(np.array([0, 2, 1, 2]), np.array([0, 0], np.int32),
                                                 2),
        "indptr that ends early": lambda: backend.csr(np.array([0, 1]), np.array([0, 0], np.int32),
                                                      2),
        "weights of another length": lambda: backend.csr(np.array([0, 1]), np.array([0], np.int32),
                                                         2, np.ones(3)),
    }


@pytest.mark.parametrize("name", wrong_calls(native.NativeBackend(threads=1)) if usable else [])
def test_a_wrong_call_is_refused(name):
    with pytest.raises((ValueError, TypeError)):
        wrong_calls(native.NativeBackend(threads=1))[name]()


def test_the_level_is_chosen_by_the_environment(monkeypatch):
    monkeypatch.setenv("HPCGCN_ISA", "plain")
    assert native.NativeBackend(threads=1).describe() == {"backend": "native", "isa": "plain",
                                                          "threads": 1}
    monkeypatch.setenv("HPCGCN_ISA", "mmx")
    with pytest.raises(ConfigError, match="avx2"):
        native.NativeBackend()
    monkeypatch.delenv("HPCGCN_ISA")
    assert native.NativeBackend().isa == native.levels()[0]


def test_a_missing_build_says_how_to_get_one(tmp_path):
    script = ("from hpcgcn.backend import native\n"
              "print(native.available())\n"
              "try: native.NativeBackend()\n"
              "except native.library.BackendError as error: print(error.exit_code, error)\n")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True,
                          timeout=60, env={"HPCGCN_NATIVE_LIBRARY": str(tmp_path / "none.so"),
                                           "PYTHONPATH": ":".join(sys.path)})
    assert done.stdout.startswith("(False,") and "\n2 " in done.stdout
    assert done.stdout.count("compiler") == 2, done.stderr


def test_without_a_compiler_the_build_goes_on(tmp_path):
    done = subprocess.run([sys.executable, "setup.py", "-q", "build_ext", "--build-lib", tmp_path,
                           "--build-temp", tmp_path / "temporary"], cwd=ROOT, env=os.environ
                          | {"CC": "false"}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "failed" in done.stderr and not list(tmp_path.rglob("*.so"))
