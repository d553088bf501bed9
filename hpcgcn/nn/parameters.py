"""All weights of a model in one flat array, their gradients and moments in three more; layers hold views."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpcgcn import philox


@dataclass
class Spec:
    """One parameter: `fill` is 'glorot' or a constant; `group` says which weight decay applies."""

    name: str
    shape: tuple[int, ...]
    fill: object = "glorot"
    group: str = "conv"

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))


class Parameter:
    """Views into the flat arrays."""

    def __init__(self, spec: Spec, value, grad):
        self.spec, self.value, self.grad = spec, value, grad


class Parameters:
    """The flat arrays and their views by name."""

    def __init__(self, backend, specs: list[Spec], seed: int, numbers: list[int] | None = None):
        """numbers: which of the model's parameters these are (default: all), so that they begin as they would among all."""
        self.backend, self.specs = backend, specs
        self.size = sum(s.size for s in specs)
        numbers = range(len(specs)) if numbers is None else numbers
        initial = np.concatenate([initial_value(s, seed, k).ravel() for k, s in zip(numbers, specs)] or [np.zeros(0)])
        self.value = backend.zeros((self.size,))
        backend.copy(np.ascontiguousarray(initial, backend.dtype), self.value)
        self.grad, self.m, self.v = (backend.zeros((self.size,)) for _ in range(3))
        self.step = 0
        self.by_name, at = {}, 0
        for spec in specs:
            view = slice(at, at + spec.size)
            self.by_name[spec.name] = Parameter(spec, self.value[view].reshape(spec.shape),
                                                self.grad[view].reshape(spec.shape))
            at += spec.size

    def __getitem__(self, name: str) -> Parameter:
        return self.by_name[name]

    def zero_grad(self):
        """grad = 0, before a backward pass: layers add to it."""
        self.backend.axpby(0.0, self.grad, 0.0, None, self.grad)

    def host_values(self) -> dict[str, np.ndarray]:
        """Every parameter by name, as NumPy arrays of their own."""
        return {name: np.array(self.backend.to_host(p.value)) for name, p in self.by_name.items()}


class StageParameters(Parameters):
    """The parameters of a model of which a stage holds some: all are known by name, those that are claimed have arrays."""

    def __init__(self, backend, specs: list[Spec], seed: int):
        self.backend, self.seed, self.whole_specs = backend, seed, specs
        self.by_name = {spec.name: Parameter(spec, None, None) for spec in specs}

    def claim(self, names: set[str]):
        """Make the arrays of these parameters, which are consecutive in the whole model's flat array; once."""
        if hasattr(self, "begin"):
            return
        numbers = [k for k, spec in enumerate(self.whole_specs) if spec.name in names]
        ends = np.cumsum([0, *(spec.size for spec in self.whole_specs)])
        self.begin = int(ends[numbers[0]]) if numbers else 0     # in the flat array of the whole model
        known = self.by_name
        super().__init__(self.backend, [self.whole_specs[k] for k in numbers], self.seed, numbers)
        for name, own in self.by_name.items():
            known[name].value, known[name].grad = own.value, own.grad    # steps hold these
        self.by_name = known             # another model may be built over them


def initial_value(spec: Spec, seed: int, number: int) -> np.ndarray:
    """Glorot-uniform or constant, the same on every rank and backend."""
    if spec.fill != "glorot":
        return np.full(spec.shape, float(spec.fill))
    limit = np.sqrt(6.0 / (spec.shape[0] + spec.shape[1]))
    draws = philox.uniform(philox.key(seed, 0, number, philox.INIT), spec.size)
    return ((2.0 * draws - 1.0) * limit).reshape(spec.shape)


class Adam:
    """Adam over the flat arrays: one kernel call for each run of parameters with the same weight decay."""

    def __init__(self, parameters: Parameters, *, beta1=0.9, beta2=0.999, epsilon=1e-8, weight_decay: dict[str, float]):
        self.parameters = parameters
        self.beta1, self.beta2, self.epsilon = beta1, beta2, epsilon
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
        p = self.parameters
        p.step += 1
        for view, decay in self.runs:
            p.backend.adam(p.value[view], p.grad[view], p.m[view], p.v[view], lr, self.beta1, self.beta2, self.epsilon,
                           decay, 1.0 - self.beta1 ** p.step, 1.0 - self.beta2 ** p.step)


def clip_gradient(parameters: Parameters, limit: float, elsewhere=lambda square_sum: square_sum) -> float:
    """Scale the gradient to a norm of at most `limit`; returns the norm before. `elsewhere` adds what other ranks hold."""
    norm = float(np.sqrt(elsewhere(parameters.backend.square_sum(parameters.grad))))
    if norm > limit:
        parameters.backend.axpby(limit / norm, parameters.grad, 0.0, None, parameters.grad)
    return norm
