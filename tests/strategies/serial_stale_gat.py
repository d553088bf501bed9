"""Stale halo rows of attention, in PyTorch with dense matrices: all parts in one process.

Rows h W of other parts are those of the last epoch (zeros in the first); their logits are computed
where they are read, with the vectors of today, which learn from them. The gradients of such rows
reach their owners an epoch later.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from small_graphs import dense_adjacency
from torch_models import Oracle

from hpcgcn.nn.models import Shape, parameter_specs
from hpcgcn.nn.parameters import initial_value


class StaleGat(Oracle):
    """part (n,): where each node lives. features, gradients: are they an epoch late?"""

    def __init__(self, graph, config, part: np.ndarray, features: bool, gradients: bool):
        specs = parameter_specs(Shape.of(config, graph.n_features, graph.n_classes))
        super().__init__(graph, config, {s.name: initial_value(s, config.seed, k)
                                         for k, s in enumerate(specs)})
        self.features, self.gradients = features, gradients
        self.far = torch.from_numpy(part[:, None] != part[None, :])[:, :, None]
        self.sent: dict[int, torch.Tensor] = {}              # rows of the last epoch, by layer
        self.owed: dict[int, torch.Tensor | None] = {}       # gradients of that epoch's halo rows
        self.adam = torch.optim.Adam(self.p.values(), lr=config.lr)

    def run_epoch(self, number: int) -> float:
        """Train for one epoch; its loss."""
        self.epoch, self.arrived, self.rows = number, 0.0, {}
        self.halo: dict[int, torch.Tensor] = {}
        self.adam.zero_grad()
        loss = self.loss(self.gat())
        (loss + self.arrived).backward()
        self.adam.step()
        self.sent, self.owed = self.rows, {layer: rows.grad for layer, rows in self.halo.items()}
        return loss.item()

    def halo_of(self, u: torch.Tensor, layer: int) -> torch.Tensor:
        """What other parts read in the place of u."""
        self.rows[layer] = u.detach()
        rows = self.sent.get(layer, torch.zeros_like(u)) if self.features else u.detach()
        if not self.gradients:
            return rows + (u - u.detach())                   # gradients come at once
        owed = self.owed.get(layer)
        if owed is not None:
            self.arrived = self.arrived + (u * owed).sum()
        self.halo[layer] = rows.clone().requires_grad_()
        return self.halo[layer]

    def gat(self) -> torch.Tensor:
        config, p, h = self.config, self.p, self.x
        edges = torch.from_numpy((dense_adjacency(self.graph) + np.eye(len(h))) != 0)[:, :, None]
        for layer in range(1, config.layers + 1):
            last = layer == config.layers
            heads = config.output_heads if last else config.heads
            u = (self.drop(h, layer) @ p[f"conv{layer}.weight"]).reshape(len(h), heads, -1)
            halo, vector = self.halo_of(u, layer), p[f"conv{layer}.att_src"]
            source = torch.where(self.far, (halo * vector).sum(2)[None], (u * vector).sum(2)[None])
            logit = (u * p[f"conv{layer}.att_dst"]).sum(2)[:, None] + source
            e = torch.nn.functional.leaky_relu(logit, 0.2)
            coefficient = torch.softmax(torch.where(edges, e, -math.inf), dim=1)
            coefficient = coefficient * self.kept_edges(heads, layer)
            rows = torch.where(self.far[:, :, :, None], halo[None], u[None])
            y = torch.einsum("ijh,ijhc->ihc", coefficient, rows)
            h = (y.mean(1) if last else y.flatten(1)) + p[f"conv{layer}.bias"]
            h = h if last else torch.relu(h)
        return h
