"""PipeGCN from its description, with nothing of hpcgcn: parts that keep copies of remote rows.

PyTorch differentiates each layer of each part; the messages between layers and epochs are lists
here. Every part holds its inner nodes and a slot for every remote in-neighbour. Epoch t reads in
the slots what was sent in epoch t - 1 (zeros at first), multiplies by today's weights, and adds to
the gradients of its inner rows what others sent back in epoch t - 1. Layer 1 is computed from an
aggregation done once. Sent values may be averaged: avg = g avg + (1 - g) received. GraphSAGE-mean
with self loops, LayerNorm and ReLU but after the last layer, no dropout; the loss is the sum over
train nodes over their global number; Adam.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch


@dataclass
class Slots:
    """What was received for one layer and direction of a part, and its moving average."""

    decay: float
    value: torch.Tensor

    def receive(self, rows: torch.Tensor):
        self.value = (self.decay * self.value + (1 - self.decay) * rows if self.decay
                      else rows.clone())


@dataclass
class PartOfGraph:
    """inner: node numbers of mine; remote: of others that mine read."""

    inner: np.ndarray
    remote: np.ndarray
    to_inner: torch.Tensor           # (inner, inner + remote): the mean over in-neighbours
    features: dict = field(default_factory=dict)         # by layer: Slots of remote rows
    gradients: dict = field(default_factory=dict)        # by layer: Slots of what is owed to mine


class PipeGCN:
    """A run. edges: a list of readers for every node; parameters: {name: array}."""

    def __init__(self, n_nodes: int, reads: list[list[int]], x, labels, train, owner, parameters,
                 n_layers: int, lr: float, decay_features: float = 0.0,
                 decay_gradients: float = 0.0):
        self.n_layers, self.labels = n_layers, torch.tensor(labels)
        self.train, self.n_train = np.asarray(train), int(np.sum(train))
        self.w = {name: torch.tensor(value, dtype=torch.float64, requires_grad=True)
                  for name, value in parameters.items()}
        self.optimiser = torch.optim.Adam(list(self.w.values()), lr=lr)
        self.x = torch.tensor(x, dtype=torch.float64)
        means = torch.stack([sum((self.x[u] for u in [*reads[v], v]),
                                 torch.zeros(self.x.shape[1], dtype=torch.float64))
                             / (len(reads[v]) + 1) for v in range(n_nodes)])
        self.mean_input = means
        self.parts = [self._part(rank, reads, owner) for rank in range(max(owner) + 1)]
        for part in self.parts:
            for layer in range(2, n_layers + 1):
                width = self.w[f"conv{layer}.weight"].shape[0]
                part.features[layer] = Slots(decay_features, torch.zeros(
                    len(part.remote), width, dtype=torch.float64))
                part.gradients[layer] = Slots(decay_gradients, torch.zeros(
                    len(part.inner), width, dtype=torch.float64))

    @staticmethod
    def _part(rank: int, reads, owner) -> PartOfGraph:
        inner = [v for v in range(len(owner)) if owner[v] == rank]
        remote = sorted({u for v in inner for u in reads[v] if owner[u] != rank})
        place = {node: k for k, node in enumerate([*inner, *remote])}
        mean = torch.zeros(len(inner), len(place), dtype=torch.float64)
        for row, v in enumerate(inner):
            for u in [*reads[v], v]:
                mean[row, place[u]] += 1 / (len(reads[v]) + 1)
        return PartOfGraph(np.array(inner), np.array(remote, int), mean)

    def _update(self, layer: int, mean, own):
        y = (mean @ self.w[f"conv{layer}.weight"] + own @ self.w[f"conv{layer}.weight_self"]
             + self.w[f"conv{layer}.bias"])
        if layer == self.n_layers:
            return y
        gamma, beta = self.w[f"norm{layer}.gamma"], self.w[f"norm{layer}.beta"]
        return torch.relu(torch.nn.functional.layer_norm(y, y.shape[1:], gamma, beta, eps=1e-5))

    def epoch(self) -> float:
        """One step of training; returns the loss before it."""
        self.optimiser.zero_grad()
        outputs = [{1: self._update(1, self.mean_input[p.inner], self.x[p.inner])}
                   for p in self.parts]
        inputs: list[dict] = [{} for _ in self.parts]
        for layer in range(2, self.n_layers + 1):
            for part, out, held in zip(self.parts, outputs, inputs):
                inner = out[layer - 1].detach().requires_grad_()
                remote = part.features[layer].value.clone().requires_grad_()
                held[layer] = inner, remote
                out[layer] = self._update(layer, part.to_inner @ torch.cat([inner, remote]), inner)
            self._send_features(layer, outputs)
        total, upstream = 0.0, []
        for part, out in zip(self.parts, outputs):
            logits, chosen = out[self.n_layers], self.train[part.inner]
            loss = torch.nn.functional.cross_entropy(
                logits[chosen], self.labels[part.inner][chosen], reduction="sum") / self.n_train
            total += float(loss.detach())
            upstream.append(torch.autograd.grad(loss, logits)[0])
        for layer in range(self.n_layers, 1, -1):
            for k, part in enumerate(self.parts):
                outputs[k][layer].backward(upstream[k])
                # Gradients of my rows from others are those that arrived an epoch ago.
                upstream[k] = inputs[k][layer][0].grad + part.gradients[layer].value
            self._send_gradients(layer, inputs)
        for k in range(len(self.parts)):
            outputs[k][1].backward(upstream[k])
        self.optimiser.step()
        return total

    def _send_features(self, layer: int, outputs):
        rows = {int(v): row for part, out in zip(self.parts, outputs)
                for v, row in zip(part.inner, out[layer - 1].detach())}
        for part in self.parts:
            if len(part.remote):
                part.features[layer].receive(torch.stack([rows[int(u)] for u in part.remote]))

    def _send_gradients(self, layer: int, inputs):
        for part in self.parts:
            owed = torch.zeros_like(part.gradients[layer].value)
            place = {int(v): k for k, v in enumerate(part.inner)}
            for other, held in zip(self.parts, inputs):
                for u, gradient in zip(other.remote, held[layer][1].grad):
                    if int(u) in place:
                        owed[place[int(u)]] += gradient
            part.gradients[layer].receive(owed)
