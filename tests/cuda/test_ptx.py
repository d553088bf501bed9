"""The PTX machine itself: right kernels give right numbers, and every kind of mistake is an
error."""

import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from probe_module import load_module

PROBES = Path(__file__).with_name("ptx_probes.cu")
RIGHT = ("reverse<true>", "reverse_twice<true>", "shuffles", "indices", "unset_shared")
MISTAKES = {
    "reverse<false>": "race", "reverse_twice<false>": "race", "two_blocks_write": "race",
    "two_lanes_write": "race", "block_reads_what_another_writes": "race",
    "past_the_end": "outside the arrays", "before_the_start": "outside the arrays",
    "past_shared": "shared memory", "not_aligned": "not aligned",
    "leaves_early": "have left the kernel|wait for ever", "two_barriers": "different barriers",
    "half_a_shuffle": "wait for ever", "outside_the_mask": "outside its mask"}


@pytest.fixture(params=[70, 100])
def probe(ptx_machine, request):
    """Run a probe kernel and return its output array."""
    cupy = ptx_machine(request.param)
    module = load_module(cupy, PROBES.read_text(), (*RIGHT, *MISTAKES))
    stream = cupy.cuda.Stream(non_blocking=True).use()

    def run(name, grid, block, *inputs, out, shared_mem=0):
        device = cupy.asarray(out)
        module.get_function(name)(grid, block, (*map(cupy.asarray, inputs), device),
                                  shared_mem=shared_mem)
        stream.synchronize()
        return device.get()
    run.cupy = cupy
    return run


@pytest.mark.parametrize("name, turned", [("reverse<true>", True), ("reverse_twice<true>", False)])
def test_a_barrier_is_a_barrier(probe, name, turned):
    x = np.arange(64, dtype=np.int32)
    got = probe(name, (1,), (64,), x, out=np.zeros(64, np.int32))
    assert (got == (x[::-1] if turned else x)).all()


def test_shuffles(probe):
    n, lane = 64, np.arange(64)
    out = probe("shuffles", (1,), (n,), out=np.zeros(4 * n, np.int32)).reshape(4, n)
    assert (out[0] == lane // 32 * 32 + (lane + 5) % 32).all()
    assert (out[1] == lane ^ 3).all()
    assert (out[2] == np.where(lane % 8 < 4, lane + 4, lane)).all()
    assert (out[3] == np.where(lane % 32 > 0, lane - 1, lane)).all()


def test_all_blocks_and_threads_run_once(probe):
    out = probe("indices", (2, 3, 2), (4, 2, 3), out=np.full(12 * 24, -1, np.int32))
    assert (out == (np.arange(12)[:, None] * 1000 + np.arange(24)).ravel()).all()


def test_shared_memory_starts_undefined(probe):
    assert (probe("unset_shared", (1,), (8,), out=np.zeros(8, np.int32), shared_mem=32) == -1).all()


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_an_error(probe, name):
    blocks = 2 if "block" in name else 1
    inputs = [np.arange(32, dtype=np.int32)] if name.startswith("reverse") else []
    with pytest.raises(probe.cupy.modules.LaunchError, match=MISTAKES[name]):
        probe(name, (blocks,), (32,), *inputs, out=np.zeros(32, np.int32), shared_mem=128)


# -- arithmetic ------------------------------------------------------------------------------------

def test_fused_operations_round_once(ptx_machine):
    ptx_machine(80).modules._ptx()
    arithmetic = sys.modules["hpcgcn_ptx_machine.arithmetic"]
    rng = np.random.default_rng(0)
    a, b, c = (rng.standard_normal(3000).astype(np.float32)
               * np.float32(2) ** rng.integers(-30, 30, 3000).astype(np.float32) for _ in range(3))
    c[:1000] = -(a * b)[:1000]                   # nearly cancels: the error of the product is left
    exact = [Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
             for x, y, z in zip(a, b, c)]
    for value, got in zip(exact, arithmetic.fma(a, b, c)):
        neighbours = [np.nextafter(got, np.float32(side)) for side in (-np.inf, np.inf)]
        assert all(abs(Fraction(float(got)) - value) <= abs(Fraction(float(n)) - value)
                   for n in neighbours)
    for value, got in zip(exact, arithmetic.fma_rm(a, b, c)):
        above = np.nextafter(got, np.float32(np.inf))
        assert Fraction(float(got)) <= value < Fraction(float(above))
    for x, z, got in zip(a, c, arithmetic.add_rz(a, c)):
        value, above = Fraction(float(x)) + Fraction(float(z)), np.nextafter(got, np.sign(x + z)
                                                                             * np.float32(np.inf))
        assert abs(Fraction(float(got))) <= abs(value) <= abs(Fraction(float(above)))
