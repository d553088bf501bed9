"""PipeGCN by hand: P parts in one process, epoch by epoch, with features and gradients that arrive
an epoch late.

NumPy only. Of hpcgcn it takes the initial weights and the random bits of dropout; everything else
is written from the paper, node by node and message by message: slow, and open to a check by eye.
GCN and GraphSAGE without norms, three layers or more, the first one aggregated beforehand (its
input does not change, so nothing of it can be stale).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from hpcgcn import philox
from hpcgcn.nn.models import Shape, parameter_specs
from hpcgcn.nn.parameters import initial_value


@dataclass
class Late:
    """What one part uses of another's rows, in one layer and direction."""

    gamma: float
    correct: bool
    newest: np.ndarray | None = None
    average: np.ndarray | None = None
    n: int = 0

    def arrive(self, rows: np.ndarray):
        self.newest = rows.copy()
        self.average = (1 - self.gamma) * rows + self.gamma * (0 if self.average is None
                                                               else self.average)
        self.n += 1

    def used(self, like: np.ndarray) -> np.ndarray:
        """What a stale epoch uses; zeros before anything arrived."""
        if self.newest is None:
            return np.zeros_like(like)
        if not self.gamma:
            return self.newest
        return self.average / (1 - self.gamma ** self.n) if self.correct else self.average


@dataclass
class Rules:
    """The settings of staleness."""

    features: bool = True
    gradients: bool = True
    refresh_every: int = 0
    first_sync: bool = False
    gamma_features: float = 0.0
    gamma_gradients: float = 0.0
    correct: bool = False
    silent: bool = False                 # nothing is ever sent
    stale_error: float = np.inf          # a drift above makes the next epoch synchronous
    narrow_too: bool = True              # are hops stale at which h W is sent?

    def in_time(self, epoch: int, stale: bool) -> bool:
        """Are this epoch's own messages used?"""
        refresh = self.refresh_every and epoch % self.refresh_every == self.refresh_every - 1
        return not stale or bool(refresh) or (epoch == 0 and self.first_sync)


@dataclass
class Serial:
    """A run of P parts. adjacency [v, u]: v reads u; part (n,): where each node lives; labels -1:
    not trained on."""

    adjacency: np.ndarray
    x: np.ndarray
    labels: np.ndarray
    part: np.ndarray
    model: str
    hidden: int
    layers: int
    n_classes: int
    dropout: float
    lr: float
    seed: int
    rules: Rules
    late: dict = field(default_factory=dict)
    history: dict = field(default_factory=dict)          # rows sent so far, by kind and layer
    drift: dict = field(default_factory=dict)            # of the last epoch

    def __post_init__(self):
        loops = self.model == "gcn"
        counted = self.adjacency + (np.eye(len(self.x)) if loops else 0)
        degree = np.maximum(counted.sum(1), 1)
        self.matrix = counted / np.sqrt(np.outer(degree,
                                                 degree)) if loops else counted / degree[:, None]
        shape = Shape(self.model, self.x.shape[1], self.n_classes, self.layers, self.hidden,
                      self_loops=loops)
        self.weights = {s.name: initial_value(s, self.seed, k)
                        for k, s in enumerate(parameter_specs(shape))}
        self.moments = {name: (np.zeros_like(w), np.zeros_like(w))
                        for name, w in self.weights.items()}
        self.step = 0

    # -- what is sent ------------------------------------------------------------------------------
    def exchange(self, kind: str, layer: int, epoch: int, pairs: dict, stale: bool,
                 gamma: float) -> dict:
        """pairs {(from, to): rows}: sent now; returned is what the receiver uses now."""
        used = {}
        stale = stale and self.drift.get((kind, layer), np.inf) <= self.rules.stale_error
        self.note_drift((kind, layer), pairs)
        for pair, rows in pairs.items():
            late = self.late.setdefault((kind, layer, pair), Late(gamma, self.rules.correct))
            if self.rules.silent:
                used[pair] = np.zeros_like(rows)
            elif self.rules.in_time(epoch, stale):
                used[pair] = rows
            else:
                used[pair] = late.used(rows)
            late.arrive(rows)
        return used

    def note_drift(self, key: tuple, pairs: dict):
        """The drift of all rows that somebody reads, from the last three epochs."""
        sent = self.history.setdefault(key, [])
        sent.append(np.concatenate([rows[self.read(key[0], *pair)]
                                    for pair, rows in pairs.items()]))
        now, total = sent[-1], (sent[-1] ** 2).sum()
        change = ((now - sent[-2]) ** 2).sum() if len(sent) > 1 else total
        of_two = ((now - sent[-3]) ** 2).sum() if len(sent) > 2 else 2 * change
        self.drift[key] = np.sqrt(min(change, max(of_two - change, 0)) / total) if total else 0.0

    def read(self, kind: str, source: int, target: int) -> np.ndarray:
        """Which rows of a message exist: those of nodes that the other part reads."""
        owner, reader = (source, target) if kind == "features" else (target, source)
        return self.matrix[np.ix_(self.part == reader, self.part == owner)].any(axis=0)

    def aggregate(self, h: np.ndarray, layer: int, epoch: int) -> np.ndarray:
        """A h, where a part reads its own rows now and those of others as they arrived."""
        parts = range(self.part.max() + 1)
        sent = {(p, q): h[self.part == p] for p in parts for q in parts if p != q}
        used = self.exchange("features", layer, epoch, sent,
                             self.rules.features and self.may_be_stale(layer),
                             self.rules.gamma_features)
        out = np.zeros_like(h)
        for q in parts:
            seen = np.empty_like(h)
            for p in parts:
                seen[self.part == p] = h[self.part == p] if p == q else used[p, q]
            out[self.part == q] = self.matrix[self.part == q] @ seen
        return out

    def aggregate_back(self, dz: np.ndarray, layer: int, epoch: int) -> np.ndarray:
        """A^T dz, where each reader sends what it owes to the rows of others."""
        parts = range(self.part.max() + 1)
        owed = {(q, p): self.matrix[np.ix_(self.part == q, self.part == p)].T @ dz[self.part == q]
                for q in parts for p in parts}
        own = {p: owed.pop((p, p)) for p in parts}
        used = self.exchange("gradients", layer, epoch, owed,
                             self.rules.gradients and self.may_be_stale(layer),
                             self.rules.gamma_gradients)
        out = np.empty_like(dz)
        for p in parts:
            out[self.part == p] = own[p] + sum(used[q, p] for q in parts if q != p)
        return out

    # -- one epoch ---------------------------------------------------------------------------------
    def mask(self, epoch: int, layer: int, width: int, stream: int = 0) -> np.ndarray:
        threshold = round(self.dropout * 65536)
        bits = philox.bits16(philox.key(self.seed, epoch, layer, philox.DROPOUT, stream),
                             np.arange(len(self.x)), width)
        return (bits >= threshold) * float(np.float32(65536 / (65536 - threshold)))

    def narrows(self, layer: int) -> bool:
        """The narrow side is sent: h W if W makes rows narrower, h otherwise."""
        w = self.weights[f"conv{layer}.weight"]
        return w.shape[1] < w.shape[0]

    def may_be_stale(self, layer: int) -> bool:
        return self.rules.narrow_too or not self.narrows(layer)

    def epoch(self, number: int) -> float:
        w, sage = self.weights, self.model == "sage"
        grads = {name: np.zeros_like(value) for name, value in w.items()}
        kept = [None]  # per layer: (input, aggregated input, output before ReLU, mask)
        h = None
        for layer in range(1, self.layers + 1):
            weight, z = w[f"conv{layer}.weight"], None
            if layer == 1:
                z = self.matrix @ self.x * self.mask(number, 1, self.x.shape[1], stream=1)
                h = self.x * self.mask(number, 1, self.x.shape[1])
                y = z @ weight
            elif self.narrows(layer):
                y = self.aggregate(h @ weight, layer, number)
            else:
                z = self.aggregate(h, layer, number)
                y = z @ weight
            if sage:
                y = y + h @ w[f"conv{layer}.weight_self"]
            y = y + w[f"conv{layer}.bias"]
            mask = self.mask(number, layer + 1, y.shape[1]) if layer < self.layers else None
            kept.append((h, z, y, mask))
            h = np.maximum(y, 0) * mask if layer < self.layers else y

        trained = self.labels >= 0
        shifted = h - h.max(1, keepdims=True)
        probability = np.exp(shifted) / np.exp(shifted).sum(1, keepdims=True)
        picked = probability[trained, self.labels[trained]]
        dy = probability.copy()
        dy[trained, self.labels[trained]] -= 1
        dy[~trained] = 0
        dy /= trained.sum()

        for layer in range(self.layers, 0, -1):
            h, z, y, mask = kept[layer]
            weight = w[f"conv{layer}.weight"]
            if mask is not None:
                dy = dy * mask * (y > 0)
            grads[f"conv{layer}.bias"] += dy.sum(0)
            dh = 0
            if sage:
                grads[f"conv{layer}.weight_self"] += h.T @ dy
                dh = dy @ w[f"conv{layer}.weight_self"].T
            if z is not None:
                grads[f"conv{layer}.weight"] += z.T @ dy
            if layer == 1:
                break
            if z is not None:
                dy = dh + self.aggregate_back(dy @ weight.T, layer, number)
            else:
                du = self.aggregate_back(dy, layer, number)
                grads[f"conv{layer}.weight"] += h.T @ du
                dy = dh + du @ weight.T
        self.adam(grads)
        return float(-np.log(picked).mean())

    def adam(self, grads: dict):
        self.step += 1
        for name, g in grads.items():
            m, v = self.moments[name]
            m[...] = 0.9 * m + 0.1 * g
            v[...] = 0.999 * v + 0.001 * g * g
            self.weights[name] -= self.lr * (m / (1 - 0.9 ** self.step)) / (
                np.sqrt(v / (1 - 0.999 ** self.step)) + 1e-8)
