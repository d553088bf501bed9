"""Adam, AdamW and SGD with momentum make the steps of PyTorch's, on every backend."""

import numpy as np
import pytest
import torch

from hpcgcn import Config
from hpcgcn.nn.parameters import Parameters, Spec, make_optimiser

SPECS = [Spec("a.weight", (7, 5)), Spec("b.weight", (5, 3), group="dense"),
         Spec("norm", (5,), 1.0, group="norm")]


def torch_optimiser(config, values):
    decay = {"conv": config.weight_decay_conv, "dense": config.weight_decay, "norm": 0.0}
    groups = [{"params": [values[spec.name]], "weight_decay": decay[spec.group]} for spec in SPECS]
    if config.optimiser == "sgd":
        return torch.optim.SGD(groups, lr=config.lr, momentum=config.momentum)
    kind = torch.optim.AdamW if config.optimiser == "adamw" else torch.optim.Adam
    return kind(groups, lr=config.lr)


@pytest.mark.one_level
@pytest.mark.parametrize("name", ["adam", "adamw", "sgd"])
def test_steps_are_those_of_pytorch(backend, name):
    config = Config(optimiser=name, lr=0.05, weight_decay=0.1, weight_decay_conv=0.02)
    parameters = Parameters(backend, SPECS, seed=3)
    start = parameters.host_values()
    values = {spec.name: torch.tensor(start[spec.name].astype(np.float64), requires_grad=True)
              for spec in SPECS}
    ours, theirs = make_optimiser(config, parameters), torch_optimiser(config, values)
    rng = np.random.default_rng(0)
    for _ in range(10):
        gradient = rng.standard_normal(parameters.size).astype(backend.dtype)
        backend.copy(gradient, parameters.grad)
        at = 0
        for spec in SPECS:
            values[spec.name].grad = torch.tensor(
                gradient[at:at + spec.size].astype(np.float64)).reshape(spec.shape)
            at += spec.size
        ours.update(config.lr)
        theirs.step()
    for key, value in parameters.host_values().items():
        assert np.abs(value - values[key].detach().numpy()).max() < 2e-5, key
