"""First values of parameters: within their bounds, and as PyTorch draws them."""

import numpy as np
import pytest

from hpcgcn.config import make_config
from hpcgcn.errors import ConfigError
from hpcgcn.nn.parameters import Spec, initial_value, initialised

SPECS = [Spec("conv0.weight", (50, 80)), Spec("conv0.weight_self", (50, 80)),
         Spec("conv0.bias", (80,), 0.0), Spec("norm1.gamma", (80,), 1.0, "norm"),
         Spec("conv1.att_src", (4, 20))]


def values(how: str) -> dict[str, np.ndarray]:
    return {spec.name: initial_value(spec, 3, k)
            for k, spec in enumerate(initialised(SPECS, how))}


def test_fan_in_has_the_bounds_and_the_spread_of_pytorchs_linear_layers():
    torch = pytest.importorskip("torch")
    found, layer = values("fan-in"), torch.nn.Linear(50, 80)
    for name, wanted in (("conv0.weight", layer.weight), ("conv0.weight_self", layer.weight),
                         ("conv0.bias", layer.bias)):
        drawn = found[name]
        assert np.abs(drawn).max() <= 50 ** -0.5
        # 80 biases: the spread of a spread is a tenth or so; four times that
        assert drawn.std() == pytest.approx(float(wanted.detach().std()), rel=0.4)
        assert abs(drawn.mean()) < 4 * drawn.std() / np.sqrt(drawn.size)
    assert not np.array_equal(found["conv0.weight"], found["conv0.weight_self"])


def test_what_is_no_matrix_of_a_layer_stays_as_it_is():
    found, usual = values("fan-in"), values("glorot")
    for name in ("norm1.gamma", "conv1.att_src"):
        np.testing.assert_array_equal(found[name], usual[name])
    assert (usual["conv0.bias"] == 0).all() and (usual["norm1.gamma"] == 1).all()
    assert np.abs(usual["conv0.weight"]).max() <= np.sqrt(6 / 130)


def test_other_names_are_refused():
    assert make_config({"initialisation": "fan-in"}).initialisation == "fan-in"
    with pytest.raises(ConfigError, match="initialisation"):
        make_config({"initialisation": "orthogonal"})
