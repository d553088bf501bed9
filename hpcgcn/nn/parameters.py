"""All weights of a model in one flat array, gradients and moments in three more."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hpcgcn import philox

# No training that converges comes near it. Products of larger ones leave the range of float32 after
# a few layers, whatever the graph.
LARGEST_PARAMETER = 1e6


def are_usable(values: np.ndarray) -> bool:
    """Are all of them numbers that a model can be computed with?"""
    return bool((np.abs(values) <= LARGEST_PARAMETER).all())     # NaN is not


@dataclass
class Spec:
    """One parameter: `fill` is 'glorot' or a constant; `group` says which weight decay applies."""

    name: str
    shape: tuple[int, ...]
    fill: float | str = "glorot"
    group: str = "conv"
    limit: float | None = None       # uniform within it, on both sides of 0, in place of `fill`

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape))


class Parameter:
    """Views into the flat arrays; None where the parameter is known, but has no memory."""

    def __init__(self, spec: Spec):
        self.spec = spec
        self.value: Any = None
        self.grad: Any = None


class Parameters:
    """The parameters of a model by name, and flat arrays of all of them, or of those named.

    Steps hold views into the flat arrays. A parameter begins with the same numbers, however many
    others have memory beside it.
    """

    COPIES = 4                       # value, gradient and the two moments of Adam

    def __init__(self, backend, specs: list[Spec], seed: int, allocate: bool = True):
        self.backend, self.all_specs, self.seed = backend, specs, seed
        self.by_name = {spec.name: Parameter(spec) for spec in specs}
        self.specs: list[Spec] = []
        self.size = self.offset = self.step = 0
        self.value: Any = None
        self.grad: Any = None
        self.m: Any = None
        self.v: Any = None
        if allocate:
            self.allocate(set(self.by_name))

    def allocate(self, names: set[str]):
        """Give memory to these parameters, which are consecutive in the order of all; once.

        `offset` is then where they begin in the flat array of all parameters.
        """
        if self.value is not None:
            return
        numbers = [k for k, spec in enumerate(self.all_specs) if spec.name in names]
        self.specs = [self.all_specs[k] for k in numbers]
        self.size = sum(spec.size for spec in self.specs)
        self.offset = sum(spec.size for spec in self.all_specs[:numbers[0]]) if numbers else 0
        drawn = [initial_value(self.all_specs[k], self.seed, k).ravel() for k in numbers]
        initial = np.concatenate(drawn or [np.zeros(0)])
        flat = [self.backend.zeros((self.size,)) for _ in range(self.COPIES)]
        self.value, self.grad, self.m, self.v = flat
        self.backend.copy(np.ascontiguousarray(initial, self.backend.dtype), self.value)
        at = 0
        for spec in self.specs:
            view, parameter = slice(at, at + spec.size), self.by_name[spec.name]
            parameter.value = self.value[view].reshape(spec.shape)
            parameter.grad = self.grad[view].reshape(spec.shape)
            at += spec.size

    def __getitem__(self, name: str) -> Parameter:
        return self.by_name[name]

    def zero_grad(self):
        """grad = 0, before a backward pass: layers add to it."""
        self.backend.clear(self.grad)

    def host_values(self) -> dict[str, np.ndarray]:
        """Every parameter that has memory by name, as NumPy arrays of their own."""
        return {spec.name: np.array(self.backend.to_host(self[spec.name].value))
                for spec in self.specs}


def initial_value(spec: Spec, seed: int, number: int) -> np.ndarray:
    """Uniform or constant, the same on every rank and backend."""
    limit = spec.limit
    if limit is None:
        if spec.fill != "glorot":
            return np.full(list(spec.shape), float(spec.fill))
        limit = np.sqrt(6.0 / (spec.shape[0] + spec.shape[1]))
    draws = philox.uniform(philox.key(seed, 0, number, philox.INIT), spec.size)
    return ((2.0 * draws - 1.0) * limit).reshape(spec.shape)


def initialised(specs: list[Spec], how: str) -> list[Spec]:
    """The parameters with other first values; how: glorot, as they are, or fan-in.

    fan-in: matrices and their biases uniform within 1 / sqrt(width of the input), as PipeGCN and
    linear layers of PyTorch have it.
    """
    if how == "glorot":
        return specs
    inputs = {spec.name: spec.shape[0] for spec in specs
              if len(spec.shape) == 2 and ".weight" in spec.name}
    for spec in specs:
        inputs.setdefault(spec.name, inputs.get(spec.name.replace(".bias", ".weight"), 0))
    return [replace(spec, limit=inputs[spec.name] ** -0.5) if inputs[spec.name] else spec
            for spec in specs]


def moments_agree(m: np.ndarray, v: np.ndarray) -> bool:
    """Can these be Adam's moments of any gradients?

    By Cauchy and Schwarz m is at most 7.3 times the root of v with the decay rates 0.9 and 0.999:
    (1 - b1) / sqrt((1 - b2) (1 - b1 * b1 / b2)). Squares of less than 1e-22 are 0 in float32.
    """
    return bool((np.abs(m) <= 8.0 * np.sqrt(v) + 1e-18).all())


class Optimiser:
    """Steps over the flat arrays, in runs of parameters of equal weight decay."""

    def __init__(self, parameters: Parameters, weight_decay: dict[str, float]):
        """weight_decay: of each group of parameters; 0 for groups that it does not name."""
        self.parameters = parameters
        self.runs = list(self._runs(weight_decay))

    def _runs(self, weight_decay):
        at, begin, previous = 0, 0, None
        for spec in self.parameters.specs:
            decay = weight_decay.get(spec.group, 0.0)
            if previous is not None and decay != previous:
                yield slice(begin, at), previous
                begin = at
            previous = decay
            at += spec.size
        if at > begin:
            yield slice(begin, at), previous

    def update(self, lr: float):
        """One step with the gradients as they are."""
        self.parameters.step += 1
        for view, decay in self.runs:
            self._update(view, lr, decay)

    def _update(self, view: slice, lr: float, decay: float):
        raise NotImplementedError


class Adam(Optimiser):
    """Adam: weight decay is part of the gradient."""

    def __init__(self, parameters: Parameters, *, beta1=0.9, beta2=0.999, epsilon=1e-8,
                 weight_decay: dict[str, float]):
        super().__init__(parameters, weight_decay)
        self.beta1, self.beta2, self.epsilon = beta1, beta2, epsilon

    def _update(self, view: slice, lr: float, decay: float):
        p = self.parameters
        p.backend.adam(p.value[view], p.grad[view], p.m[view], p.v[view], lr, self.beta1,
                       self.beta2, self.epsilon, decay, 1.0 - self.beta1 ** p.step,
                       1.0 - self.beta2 ** p.step)


class AdamW(Adam):
    """Adam with weight decay apart from the gradient: parameters shrink by lr * decay per step."""

    def _update(self, view: slice, lr: float, decay: float):
        value, backend = self.parameters.value[view], self.parameters.backend
        if decay:
            backend.axpby(1.0 - lr * decay, value, 0.0, None, value)
        super()._update(view, lr, 0.0)


class SGD(Optimiser):
    """Gradient descent with momentum: m = momentum * m + gradient, value -= lr * m."""

    def __init__(self, parameters: Parameters, *, momentum: float,
                 weight_decay: dict[str, float]):
        super().__init__(parameters, weight_decay)
        self.momentum = momentum

    def _update(self, view: slice, lr: float, decay: float):
        p, axpby = self.parameters, self.parameters.backend.axpby
        value, m = p.value[view], p.m[view]
        axpby(self.momentum, m, 1.0, p.grad[view], m)
        if decay:
            axpby(1.0, m, decay, value, m)
        axpby(1.0, value, -lr, m, value)


def make_optimiser(config, parameters: Parameters) -> Optimiser:
    """The optimiser of these settings."""
    decay = config.weight_decay
    of_groups = {"dense": decay,
                 "conv": decay if config.weight_decay_conv < 0 else config.weight_decay_conv}
    if config.optimiser == "sgd":
        return SGD(parameters, momentum=config.momentum, weight_decay=of_groups)
    kind = AdamW if config.optimiser == "adamw" else Adam
    return kind(parameters, weight_decay=of_groups)


def clip_gradient(parameters: Parameters, limit: float,
                  elsewhere=lambda square_sum: square_sum) -> float:
    """Scale the gradient to a norm of at most `limit`; returns the norm before.

    `elsewhere` adds what other ranks hold.
    """
    norm = float(np.sqrt(elsewhere(parameters.backend.square_sum(parameters.grad))))
    if norm > limit:
        parameters.backend.axpby(limit / norm, parameters.grad, 0.0, None, parameters.grad)
    return norm
