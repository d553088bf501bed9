"""Matrix products below fp32: inputs are rounded, nothing else is; who cannot do it says so."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from small_graphs import make_trainer, small_graph

from hpcgcn.backend.cuda import CudaBackend
from hpcgcn.backend.reference import ReferenceBackend
from hpcgcn.backend.rounding import MANTISSA_BITS, rounded
from hpcgcn.errors import BackendError, ConfigError


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("precision", MANTISSA_BITS)
def test_inputs_are_rounded_to_the_nearest(precision):
    rng = np.random.default_rng(0)
    x = rng.standard_normal(2000).astype(np.float32) * np.float32(2) ** rng.integers(-40, 40, 2000)
    x = x.astype(np.float32)
    step = 2.0 ** (np.floor(np.log2(np.abs(x.astype(np.float64)))) - MANTISSA_BITS[precision])
    got = rounded(x, precision)
    assert (np.abs(got.astype(np.float64) - x) <= step / 2).all()
    assert all(Fraction(float(g)) % Fraction(float(s)) == 0 for g, s in zip(got, step))
    ties = np.array([1 + 2.0 ** -(MANTISSA_BITS[precision] + 1),
                     1 + 3 * 2.0 ** -(MANTISSA_BITS[precision] + 1)], np.float32)
    assert (rounded(ties, precision) == [1, 1 + 2.0 ** (1 - MANTISSA_BITS[precision])]).all()
    special = np.array([np.inf, -np.inf, np.nan, 0.0], np.float32)
    np.testing.assert_array_equal(rounded(special, precision), special)


@pytest.mark.parametrize("precision", MANTISSA_BITS)
@pytest.mark.parametrize("transposed", itertools.product((False, True), (False, True)))
@pytest.mark.parametrize("accumulate", [False, True])
def test_products_are_those_of_rounded_inputs(stand_in, precision, transposed, accumulate):
    a, b = numbers(7, 33), numbers(33, 12, seed=1)
    given = [x.T.copy() if t else x for x, t in zip((a, b), transposed)]
    expected = numbers(7, 12, seed=2)
    out = expected.copy()
    exact = (rounded(a, precision).astype(np.float64) @ rounded(b, precision)) * 0.5 \
        + (expected if accumulate else 0)
    for backend in (CudaBackend(precision=precision), ReferenceBackend(precision=precision)):
        there = backend.from_host(out.copy())
        backend.gemm(*map(backend.from_host, given), there, *transposed, accumulate, 0.5)
        np.testing.assert_allclose(backend.to_host(there), exact, rtol=1e-5, atol=1e-5)
    wrong = (a.astype(np.float64) @ b) * 0.5 + (expected if accumulate else 0)
    assert np.abs(wrong - exact).max() > 1e-4                    # fp32 is something else


@pytest.mark.parametrize("precision", MANTISSA_BITS)
def test_a_training_in_another_precision(stand_in, precision):
    """The reference's losses in that precision, and not those of fp32."""
    graph, runs = small_graph(), []
    for backend, how in (("reference", precision), ("cuda", precision), ("cuda", "fp32")):
        trainer = make_trainer(graph, backend=backend, precision=how, hidden=12, layers=2, seed=1,
                               model="sage")
        runs.append([trainer.run_epoch()[0] for _ in range(4)])
        trainer.close()
    # one rounding of an input apart, a sum in another order may take the next step
    assert runs[1] == pytest.approx(runs[0], abs=2e-3 if precision == "bf16" else 2e-4)
    assert runs[1] != pytest.approx(runs[2], abs=1e-6)


def test_a_device_without_these_tensor_cores_is_told(ptx_machine):
    ptx_machine(70)
    with pytest.raises(BackendError, match="compute capability 8.0 or later; this one has 7.0"):
        CudaBackend(precision="tf32")


@pytest.mark.parametrize("settings, message", [
    ({"precision": "tf32", "backend": "native"}, "needs backend = 'cuda'"),
    ({"precision": "bf16", "dtype": "float64"}, "does not go with dtype")])
def test_settings_that_do_not_go_together(settings, message):
    with pytest.raises(ConfigError, match=message):
        make_trainer(small_graph(), **{"backend": "reference", **settings})


def test_a_name_that_is_no_precision():
    with pytest.raises(BackendError, match="no precision 'fp8'"):
        ReferenceBackend(precision="fp8")
