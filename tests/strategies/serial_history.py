"""GNNPipe's rule by hand: all chunks in one process, layer by layer, with masks that say who reads
whom and how.

NumPy only. Of hpcgcn it takes the initial weights and the random bits of dropout and of the chunks'
order; the rest is written from the paper: a node reads the current rows of its own and of earlier
chunks, and a snapshot of later ones; going back, an edge to a snapshot carries nothing (and then
edges between chunks count twice), or what it carried in the last epoch. GCNII and ResGCN+.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from hpcgcn import philox
from hpcgcn.nn.models import Shape, parameter_specs
from hpcgcn.nn.parameters import initial_value


@dataclass
class Rules:
    """The three techniques of the paper, each of which can be left out."""

    hold: int = 23
    shuffle: bool = True
    zero_gradients: bool = True


@dataclass
class Serial:
    """adjacency [v, u]: v reads u; chunk (n,): of each node; labels -1: not trained on."""

    adjacency: np.ndarray
    x: np.ndarray
    labels: np.ndarray
    chunk: np.ndarray
    model: str
    hidden: int
    layers: int
    n_classes: int
    dropout: float
    lr: float
    seed: int
    rules: Rules
    alpha: float = 0.1
    lambda_: float = 0.5
    snapshot: dict = field(default_factory=dict)          # of each layer's aggregation input
    last_dz: dict = field(default_factory=dict)

    def __post_init__(self):
        counted = self.adjacency + np.eye(len(self.x))
        degree = counted.sum(1)
        self.matrix = counted / np.sqrt(np.outer(degree, degree))
        shape = Shape(self.model, self.x.shape[1], self.n_classes, self.layers, self.hidden)
        self.w = {s.name: initial_value(s, self.seed, k)
                  for k, s in enumerate(parameter_specs(shape))}
        self.moments = {name: (np.zeros_like(w), np.zeros_like(w)) for name, w in self.w.items()}
        self.step = 0
        zero = np.zeros((len(self.x), self.hidden))
        self.snapshot = dict.fromkeys(range(1, self.layers + 1), zero)
        if self.model == "gcn":  # its last layer aggregates after the product that narrows
            self.snapshot[self.layers] = np.zeros((len(self.x), self.n_classes))
        self.last_dz = dict(self.snapshot)

    # -- who reads whom ----------------------------------------------------------------------------
    def masks(self, epoch: int):
        """(matrix of current reads, of historical reads, of what goes back)."""
        n_chunks = self.chunk.max() + 1
        order = np.arange(n_chunks)
        if self.rules.shuffle:
            order = philox.permutation(philox.key(self.seed, epoch, 0, philox.ORDER), n_chunks)
        turn = np.empty(n_chunks, int)
        turn[order] = np.arange(n_chunks)
        reader, read = turn[self.chunk][:, None], turn[self.chunk][None, :]
        current, late = self.matrix * (read <= reader), self.matrix * (read > reader)
        doubled = self.rules.zero_gradients and self.rules.shuffle
        factor = np.where(read == reader, 1, 2) if doubled else 1
        return current, late, current * factor

    def aggregate(self, e, layer):
        self.kept[layer] = e
        return self.current @ e + self.late @ self.snapshot[layer]

    def aggregate_back(self, dz, layer):
        de = self.going_back.T @ dz
        if not self.rules.zero_gradients:
            de = de + self.late.T @ self.last_dz[layer]
        self.last_dz[layer] = dz
        return de

    def mask(self, epoch, layer, width, stream=0):
        threshold = round(self.dropout * 65536)
        bits = philox.bits16(philox.key(self.seed, epoch, layer, philox.DROPOUT, stream),
                             np.arange(len(self.x)), width)
        return (bits >= threshold) * float(np.float32(65536 / (65536 - threshold)))

    # -- one epoch ---------------------------------------------------------------------------------
    def epoch(self, number: int) -> float:
        self.current, self.late, self.going_back = self.masks(number)
        self.kept, self.grads = {}, {name: np.zeros_like(w) for name, w in self.w.items()}
        loss = getattr(self, f"_{self.model}")(number)
        self.adam()
        if (number + 1) % self.rules.hold == 0:
            self.snapshot = dict(self.kept)
        return loss

    def loss(self, logits):
        trained = self.labels >= 0
        shifted = logits - logits.max(1, keepdims=True)
        probability = np.exp(shifted) / np.exp(shifted).sum(1, keepdims=True)
        d = probability.copy()
        d[trained, self.labels[trained]] -= 1
        d[~trained] = 0
        return float(-np.log(probability[trained, self.labels[trained]]).mean()), d / trained.sum()

    def output(self, e):
        """Loss, and the gradient of the last layer's rows."""
        w, g = self.w, self.grads
        loss, d = self.loss(e @ w["output.weight"] + w["output.bias"])
        g["output.weight"] += e.T @ d
        g["output.bias"] += d.sum(0)
        return loss, d @ w["output.weight"].T

    def _gcnii(self, number):
        w, g, layers = self.w, self.grads, range(1, self.layers + 1)
        x = self.x * self.mask(number, 1, self.x.shape[1])
        before = x @ w["input.weight"] + w["input.bias"]
        h0 = np.maximum(before, 0)
        mask0 = self.mask(number, 2, self.hidden)
        e, t, y, m = {0: h0 * mask0}, {}, {}, {}
        beta = {layer: math.log(self.lambda_ / layer + 1) for layer in layers}
        for k in layers:
            t[k] = (1 - self.alpha) * self.aggregate(e[k - 1], k) + self.alpha * h0
            y[k] = (1 - beta[k]) * t[k] + beta[k] * t[k] @ w[f"conv{k}.weight"]
            m[k] = self.mask(number, k + 2, self.hidden)
            e[k] = np.maximum(y[k], 0) * m[k]
        loss, de = self.output(e[self.layers])
        dh0 = 0
        for k in reversed(layers):
            dy = de * m[k] * (y[k] > 0)
            g[f"conv{k}.weight"] += beta[k] * t[k].T @ dy
            dt = (1 - beta[k]) * dy + beta[k] * dy @ w[f"conv{k}.weight"].T
            dh0 = dh0 + self.alpha * dt
            de = self.aggregate_back((1 - self.alpha) * dt, k)
        dbefore = (dh0 + de * mask0) * (before > 0)
        g["input.weight"] += x.T @ dbefore
        g["input.bias"] += dbefore.sum(0)
        return loss

    def _gcn(self, number):
        """The input is aggregated once, exactly; the last layer narrows first, so its logits are
        what a hop brings."""
        w, g, inner = self.w, self.grads, range(2, self.layers)
        z, y, m, e = {1: (self.matrix @ self.x) * self.mask(number, 1, self.x.shape[1],
                                                            stream=1)}, {}, {}, {}
        for k in range(1, self.layers):
            if k in inner:
                z[k] = self.aggregate(e[k - 1], k)
            y[k] = z[k] @ w[f"conv{k}.weight"] + w[f"conv{k}.bias"]
            m[k] = self.mask(number, k + 1, self.hidden)
            e[k] = np.maximum(y[k], 0) * m[k]
        last = self.layers
        loss, d = self.loss(self.aggregate(e[last - 1] @ w[f"conv{last}.weight"], last)
                            + w[f"conv{last}.bias"])
        g[f"conv{last}.bias"] += d.sum(0)
        du = self.aggregate_back(d, last)
        g[f"conv{last}.weight"] += e[last - 1].T @ du
        de = du @ w[f"conv{last}.weight"].T
        for k in reversed(range(1, self.layers)):
            dy = de * m[k] * (y[k] > 0)
            g[f"conv{k}.weight"] += z[k].T @ dy
            g[f"conv{k}.bias"] += dy.sum(0)
            if k in inner:
                de = self.aggregate_back(dy @ w[f"conv{k}.weight"].T, k)
        return loss

    def _resgcn(self, number):
        w, g, layers = self.w, self.grads, range(1, self.layers + 1)
        x = self.x * self.mask(number, 1, self.x.shape[1])
        stream = x @ w["input.weight"] + w["input.bias"]
        kept, z = {}, {}
        for k in layers:
            e, kept[k] = self.norm(stream, k, number)
            z[k] = self.aggregate(e, k)
            stream = stream + z[k] @ w[f"conv{k}.weight"] + w[f"conv{k}.bias"]
        e, last = self.norm(stream, self.layers + 1, number)
        loss, de = self.output(e)
        dstream = self.norm_back(de, last, self.layers + 1)
        for k in reversed(layers):
            g[f"conv{k}.weight"] += z[k].T @ dstream
            g[f"conv{k}.bias"] += dstream.sum(0)
            de = self.aggregate_back(dstream @ w[f"conv{k}.weight"].T, k)
            dstream = dstream + self.norm_back(de, kept[k], k)
        g["input.weight"] += x.T @ dstream
        g["input.bias"] += dstream.sum(0)
        return loss

    def norm(self, x, k, number):
        centred = x - x.mean(1, keepdims=True)
        rstd = 1 / np.sqrt((centred ** 2).mean(1, keepdims=True) + 1e-5)
        xhat, mask = centred * rstd, self.mask(number, k + 1, self.hidden)
        v = xhat * self.w[f"norm{k}.gamma"] + self.w[f"norm{k}.beta"]
        return np.maximum(v, 0) * mask, (xhat, rstd, v, mask)

    def norm_back(self, de, kept, k):
        xhat, rstd, v, mask = kept
        dv = de * mask * (v > 0)
        self.grads[f"norm{k}.gamma"] += (dv * xhat).sum(0)
        self.grads[f"norm{k}.beta"] += dv.sum(0)
        dx = dv * self.w[f"norm{k}.gamma"]
        return rstd * (dx - dx.mean(1, keepdims=True) - xhat * (dx * xhat).mean(1, keepdims=True))

    def adam(self):
        self.step += 1
        for name, g in self.grads.items():
            m, v = self.moments[name]
            m[...] = 0.9 * m + 0.1 * g
            v[...] = 0.999 * v + 0.001 * g * g
            self.w[name] -= self.lr * (m / (1 - 0.9 ** self.step)) / (
                np.sqrt(v / (1 - 0.999 ** self.step)) + 1e-8)
