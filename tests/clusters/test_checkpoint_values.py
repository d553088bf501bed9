"""Values that training cannot go on from are refused, whatever the checksums say."""

import dataclasses

import numpy as np
import pytest

from hpcgcn.backend.reference import ReferenceBackend
from hpcgcn.config import make_config
from hpcgcn.errors import FileError
from hpcgcn.nn.models import Shape, parameter_specs
from hpcgcn.nn.parameters import Adam, Parameters, moments_agree
from hpcgcn.train import checkpoint

CONFIG = make_config({"model": "gcn", "layers": 2, "hidden": 4})
SPECS = parameter_specs(Shape.of(CONFIG, 5, 3))
SIZE = sum(spec.size for spec in SPECS)


def snapshot(**changes):
    """A sound one of one epoch, but for these arrays."""
    arrays = {"parameters": np.ones(SIZE, np.float32), "m": np.zeros(SIZE, np.float32),
              "v": np.zeros(SIZE, np.float32)}
    for name, value in changes.items():
        arrays[name][3] = value
    return checkpoint.Snapshot(epoch=1, step=1, best=checkpoint.Best(), rate_state=[], n_ranks=1,
                               **arrays)


def saved(tmp_path, what):
    checkpoint.write_model(str(tmp_path / "model.h5"), what, SPECS, CONFIG, "")
    return checkpoint.load(str(tmp_path))


@pytest.mark.parametrize("changes,words", [
    ({"parameters": 2e6}, "/parameters holds NaN or numbers above 1e"),
    ({"parameters": -np.inf}, "/parameters holds NaN or numbers above 1e"),
    ({"parameters": np.nan}, "/parameters holds NaN or numbers above 1e"),
    ({"m": np.inf}, "/m holds NaN or infinity"), ({"v": np.nan}, "/v holds NaN or infinity"),
    ({"v": -1.0}, "/v holds negative numbers"),
    ({"m": 1.0}, "/m and /v are not the two moments"),
    ({"m": 1e38, "v": 1e3}, "/m and /v are not the two moments")])
def test_what_cannot_be_gone_on_from_is_refused(changes, words, tmp_path):
    with pytest.raises(FileError, match=words):
        saved(tmp_path, snapshot(**changes))


def test_a_sound_one_is_read(tmp_path):
    found = saved(tmp_path, snapshot(parameters=1e6, m=-7.0, v=1.0))
    assert dataclasses.asdict(found)["epoch"] == 1


@pytest.mark.parametrize("scale", [1e-30, 1e-21, 1e-10, 1.0, 1e15])
def test_the_moments_of_any_gradients_agree(scale):
    """Growing as fast as makes m largest beside v, and at random, over 300 steps of Adam itself."""
    backend = ReferenceBackend(np.float32)
    rng = np.random.default_rng(1)
    for gradients in ((scale * 1.11 ** (k - 299) * np.ones(SIZE) for k in range(300)),
                      (scale * rng.normal(size=SIZE) * 10.0 ** rng.integers(-8, 1)
                       for _ in range(300))):
        parameters = Parameters(backend, SPECS, seed=0)
        adam = Adam(parameters, weight_decay={})
        for gradient in gradients:
            parameters.grad[...] = gradient
            adam.update(0.01)
            assert moments_agree(parameters.m, parameters.v)
