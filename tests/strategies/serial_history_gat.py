"""GNNPipe's rule for attention, in PyTorch with dense matrices: all chunks in one process.

A node's softmax takes the current rows of its own and of earlier chunks and a snapshot's rows of
later ones, whose logits are computed with the vectors of today. What is read from a snapshot is a
constant, its logit too; gradients across chunks, also those through the logit, count twice in a
random order.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from serial_history import Rules
from small_graphs import dense_adjacency
from torch_models import Oracle

from hpcgcn import philox
from hpcgcn.nn.models import Shape, parameter_specs
from hpcgcn.nn.parameters import initial_value


def counted(x: torch.Tensor, times: int) -> torch.Tensor:
    """The same numbers, whose gradients count so often."""
    return x.detach() + times * (x - x.detach())


class SerialGat(Oracle):
    """chunk (n,): of each node."""

    def __init__(self, graph, config, chunk: np.ndarray, rules: Rules):
        specs = parameter_specs(Shape.of(config, graph.n_features, graph.n_classes))
        super().__init__(graph, config, {s.name: initial_value(s, config.seed, k)
                                         for k, s in enumerate(specs)})
        self.chunk, self.rules = chunk, rules
        self.snapshot: dict[int, torch.Tensor] = {}
        self.adam = torch.optim.Adam(self.p.values(), lr=config.lr)

    def run_epoch(self, number: int) -> float:
        """Train for one epoch; its loss."""
        self.epoch, self.rows = number, {}
        self.adam.zero_grad()
        loss = self.loss(self.gat())
        loss.backward()
        self.adam.step()
        if (number + 1) % self.rules.hold == 0:
            self.snapshot = self.rows
        return loss.item()

    def turns(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(the turn of the reader, of what is read)"""
        order = np.arange(self.chunk.max() + 1)
        if self.rules.shuffle:
            key = philox.key(self.config.seed, self.epoch, 0, philox.ORDER)
            order = philox.permutation(key, len(order))
        turn = torch.from_numpy(np.argsort(order)[self.chunk])
        return turn[:, None], turn[None, :]

    def gat(self) -> torch.Tensor:
        config, p, h = self.config, self.p, self.x
        edges = torch.from_numpy((dense_adjacency(self.graph) + np.eye(len(h))) != 0)[:, :, None]
        reader, read = self.turns()
        late, across = (read > reader)[:, :, None], (read != reader)[:, :, None]
        times = 2 if self.rules.shuffle else 1
        for layer in range(1, config.layers + 1):
            last = layer == config.layers
            heads = config.output_heads if last else config.heads
            u = (self.drop(h, layer) @ p[f"conv{layer}.weight"]).reshape(len(h), heads, -1)
            self.rows[layer] = u.detach()
            old = self.snapshot.get(layer, torch.zeros_like(u))
            vector = p[f"conv{layer}.att_src"]
            near = (u * vector).sum(2)[None]
            source = torch.where(across, counted(near, times), near)
            source = torch.where(late, (old * vector.detach()).sum(2)[None], source)
            logit = (u * p[f"conv{layer}.att_dst"]).sum(2)[:, None] + source
            e = torch.nn.functional.leaky_relu(logit, 0.2)
            coefficient = torch.softmax(torch.where(edges, e, -math.inf), dim=1)
            coefficient = coefficient * self.kept_edges(heads, layer)
            rows = torch.where(across[:, :, :, None], counted(u, times)[None], u[None])
            rows = torch.where(late[:, :, :, None], old[None], rows)
            y = torch.einsum("ijh,ijhc->ihc", coefficient, rows)
            h = (y.mean(1) if last else y.flatten(1)) + p[f"conv{layer}.bias"]
            h = h if last else torch.relu(h)
        return h
