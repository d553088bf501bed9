"""The emulation itself: barriers, shuffles, votes and atomics are real, and mistakes with them
show."""

from pathlib import Path

import numpy as np
import pytest
from probe_module import load_module

from hpcgcn.errors import BackendError

PROBES = Path(__file__).with_name("probes.cu")
NAMES = ("reverse<true>", "reverse<false>", "rotate_in_warp<true>", "rotate_in_warp<false>",
         "shuffles", "votes", "atomics", "indices", "unset_shared", "leaves_early", "two_barriers",
         "half_a_shuffle", "outside_the_mask", "halves", "all_types")


@pytest.fixture
def probe(stand_in):
    """Run a probe kernel and return its output array."""
    module = load_module(stand_in, PROBES.read_text(), NAMES)
    stream = stand_in.cuda.Stream(non_blocking=True).use()

    def run(name, grid, block, *inputs, out, shared_mem=0):
        device = stand_in.asarray(out)
        module.get_function(name)(grid, block, (*map(stand_in.asarray, inputs), device),
                                  shared_mem=shared_mem)
        stream.synchronize()
        return device.get()
    run.module, run.stream = module, stream
    return run


def test_a_barrier_is_a_barrier(probe, order):
    x = np.arange(64, dtype=np.int32)
    assert (probe("reverse<true>", (1,), (64,), x, out=np.zeros(64, np.int32),
                  shared_mem=256) == x[::-1]).all()
    assert (probe("rotate_in_warp<true>", (1,), (64,), x, out=np.zeros(64, np.int32))
            == x.reshape(2, 32)[:, (np.arange(32) + 1) % 32].ravel()).all()


def test_a_missing_barrier_gives_wrong_numbers(probe, order):
    x = np.arange(1, 65, dtype=np.int32)
    wrong = probe("reverse<false>", (1,), (64,), x, out=np.zeros(64, np.int32), shared_mem=256)
    assert (wrong != x[::-1]).any()


def test_a_missing_warp_barrier_shows_in_one_order_at_least(probe, monkeypatch):
    x = np.arange(1, 65, dtype=np.int32)
    expected = x.reshape(2, 32)[:, (np.arange(32) + 1) % 32].ravel()
    wrong = 0
    for shift, order in enumerate(("ascending", "descending", "shuffled")):
        monkeypatch.setenv("HPCGCN_CUDA_STAND_IN_ORDER", order)
        values = x + 100 * shift  # what an earlier launch left in shared memory must not help
        got = probe("rotate_in_warp<false>", (1,), (64,), values, out=np.zeros(64, np.int32))
        wrong += (got != expected + 100 * shift).any()
    assert wrong


def test_shuffles(probe, order):
    n, lane = 64, np.arange(64)
    out = probe("shuffles", (1,), (n,), out=np.zeros(5 * n, np.int32)).reshape(5, n)
    base = lane // 32 * 32
    assert (out[0] == base + (lane + 5) % 32).all()
    assert (out[1] == lane ^ 3).all()
    assert (out[2] == np.where(lane % 8 < 4, lane + 4, lane)).all()
    assert (out[3] == np.where(lane % 32 > 0, lane - 1, lane)).all()
    assert (out[4] == (lane // 4 * 4 + 3) // 2).all()


def test_votes(probe, order):
    out = probe("votes", (1,), (32,), out=np.zeros(4 * 32, np.int32)).reshape(4, 32)
    ballot = sum(1 << lane for lane in range(0, 32, 3))
    assert (out[0].view(np.uint32) == ballot).all() and (out[1] == 1).all() and (out[2] == 0).all()
    assert (out[3, :8] == 0b11000000).all()


def test_atomics(probe, order):
    out = probe("atomics", (3,), (64,), out=np.zeros(4, np.int32))
    assert out[0] == 192 and out[1] == 191 and out[2] == -63 and out[3] in (1, 2, 3)


def test_all_blocks_and_threads_run_once(probe, order):
    out = probe("indices", (2, 3, 2), (4, 2, 3), out=np.full(12 * 24, -1, np.int32))
    assert (out == (np.arange(12)[:, None] * 1000 + np.arange(24)).ravel()).all()


def test_shared_memory_starts_undefined(probe):
    assert np.isnan(probe("unset_shared", (1,), (8,), out=np.zeros(8, np.float32),
                          shared_mem=32)).all()


@pytest.mark.parametrize("name, message", [
    ("leaves_early", "wait for ever"), ("two_barriers", "different barriers"),
    ("half_a_shuffle", "wait for ever"), ("outside_the_mask", "outside its mask")])
def test_threads_that_do_not_meet_are_an_error(probe, stand_in, order, name, message):
    with pytest.raises(stand_in.modules.LaunchError, match=message):
        probe(name, (1,), (32,), out=np.zeros(32, np.int32))
    # and it goes on
    assert (probe("indices", (1,), (32,), out=np.zeros(32, np.int32)) == np.arange(32)).all()


def test_half_conversions_are_those_of_ieee(probe, stand_in):
    bits = np.arange(65536, dtype=np.uint16)
    rng = np.random.default_rng(0)
    x = np.concatenate(
        [rng.standard_normal(20000) * 10.0 ** rng.integers(-9, 6, 20000),
         [0.0, -0.0, np.inf, -np.inf, 65519.9, 65520.0, 5.96e-8, 2.98e-8, 2.99e-8, 6.1e-5, 1e-30],
         bits.view(np.float16)[np.isfinite(bits.view(np.float16))]]).astype(np.float32)
    wide, narrowed = (stand_in.zeros((n,), t)
                      for n, t in ((65536, np.float32), (len(x), np.uint16)))
    probe.module.get_function("halves")((1,), (32,),
                                        (*map(stand_in.asarray, (bits,)), wide, stand_in.asarray(x),
                                         narrowed, np.int32(65536), np.int32(len(x))))
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(narrowed.get(), x.astype(np.float16).view(np.uint16))
    np.testing.assert_array_equal(wide.get(), bits.view(np.float16).astype(np.float32))


# -- launches --------------------------------------------------------------------------------------

def good_arguments(cupy):
    """Arguments that fit all_types."""
    return [cupy.asarray(np.ones(3, np.float32)),
            cupy.asarray(np.arange(4, dtype=np.int32).reshape(1, 4)), np.float64(1), np.int32(2),
            np.uint32(3), np.int64(4), cupy.asarray(np.zeros(1, np.float32))]


def test_a_launch_that_fits_runs(probe, stand_in):
    arguments = good_arguments(stand_in)
    probe.module.get_function("all_types")((1,), (1,), tuple(arguments))
    assert arguments[-1].get()[0] == 1 + 3 + 1 + 2 + 3 + 4


@pytest.mark.parametrize("position, value, message", [
    (0, lambda cupy: np.ones(3, np.float32), "device array"),
    (0, lambda cupy: cupy.asarray(np.ones(3)), "array of float64"),
    (0, lambda cupy: cupy.asarray(np.ones((4, 4), np.float32))[:, 1:2], "strided"),
    (0, lambda cupy: None, "device array"),
    (1, lambda cupy: cupy.asarray(np.zeros(8, np.int32))[1:5], "aligned"),
    (2, lambda cupy: np.float32(1), "exactly that type"),
    (3, lambda cupy: 2, "exactly that type"),
    (4, lambda cupy: np.int32(3), "exactly that type"),
    (5, lambda cupy: np.int32(4), "exactly that type"),
    (6, lambda cupy: cupy.asarray(np.zeros(1, np.int32)), "array of int32")])
def test_arguments_are_checked_against_the_signature(probe, stand_in, position, value, message):
    arguments = good_arguments(stand_in)
    arguments[position] = value(stand_in)
    with pytest.raises(stand_in.modules.LaunchError, match=message):
        probe.module.get_function("all_types")((1,), (1,), tuple(arguments))


def test_too_few_arguments(probe, stand_in):
    with pytest.raises(stand_in.modules.LaunchError, match="6 arguments given, the kernel takes 7"):
        probe.module.get_function("all_types")((1,), (1,), tuple(good_arguments(stand_in)[:6]))


@pytest.mark.parametrize("grid, block, shared_mem",
                         [((1,), (1025,), 0), ((1,), (1, 1, 65), 0), ((0,), (32,), 0),
                          ((1, 65536), (32,), 0), ((2 ** 31,), (32,), 0), ((1,), (32,), 49153)])
def test_limits_of_a_launch(probe, stand_in, grid, block, shared_mem):
    with pytest.raises(stand_in.modules.LaunchError, match="not possible|shared memory"):
        probe.module.get_function("all_types")(grid, block, tuple(good_arguments(stand_in)),
                                               shared_mem=shared_mem)


def test_host_code_cannot_touch_device_arrays(probe, stand_in):
    array = stand_in.asarray(np.ones(3, np.float32))
    for touch in (np.asarray, np.sum, float, bool, list, lambda a: a + 1, lambda a: np.ones(3) * a,
                  lambda a: np.copyto(np.ones(3), a), memoryview, lambda a: a.__setitem__(0, 1)):
        with pytest.raises(TypeError):
            touch(array)


def test_a_kernel_that_does_not_compile_says_so(stand_in):
    with pytest.raises(BackendError, match="nonsense"):
        load_module(stand_in, "__global__ void broken(int *x) { x = nonsense; }", ("broken",))
