"""The models written once more, in PyTorch with dense matrices: an independent oracle.

Taken from hpcgcn: initial weights, and the 16 random bits of dropout. Everything else is written
from the papers.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from small_graphs import dense_adjacency, dense_features

from hpcgcn import philox
from hpcgcn.graph.data import TRAIN

torch.set_num_threads(1)      # the matrices are tiny


def normalised(graph, config) -> torch.Tensor:
    """The dense aggregation matrix."""
    adjacency = torch.from_numpy(dense_adjacency(graph))
    loops = config.self_loops == "yes" or (config.self_loops == "auto" and config.model != "sage")
    if loops:
        adjacency = adjacency + torch.eye(graph.n_nodes, dtype=torch.float64)
    degree = adjacency.sum(1)
    degree = torch.where(degree > 0, degree, 1.0)
    if config.model == "sage":
        return adjacency / degree[:, None]
    return adjacency / degree.sqrt()[:, None] / degree.sqrt()[None, :]


class Oracle:
    """A model over one graph; parameters are leaf tensors under hpcgcn's names."""

    def __init__(self, graph, config, values: dict[str, np.ndarray]):
        self.graph, self.config = graph, config
        self.matrix = normalised(graph, config)
        self.x = torch.from_numpy(dense_features(graph))
        self.p = {name: torch.from_numpy(np.array(v, np.float64)).requires_grad_(
                      not name.endswith((".mean", ".deviation"))) for name, v in values.items()}
        self.epoch, self.trains = 0, True
        auto_norm = config.model == "sage"
        self.norm = {"yes": True, "batch": True, "no": False, "auto": auto_norm}[config.norm]
        sparse = not isinstance(graph.features, np.ndarray)
        self.precomputes = {"yes": True, "no": False, "auto": not sparse}[config.precompute]

    def drop(self, h: torch.Tensor, layer: int, stream: int = 0) -> torch.Tensor:
        threshold = round(self.config.dropout * 65536)
        if not threshold:
            return h
        key = philox.key(self.config.seed, self.epoch, layer, philox.DROPOUT, stream)
        bits = philox.bits16(key, np.arange(self.graph.n_nodes), h.shape[1])
        scale = float(np.float32(65536.0 / (65536 - threshold)))
        return h * torch.from_numpy((bits >= threshold) * scale)

    def layer_norm(self, h: torch.Tensor, layer: int) -> torch.Tensor:
        """The norm of a layer, whichever it is."""
        if self.config.norm == "batch":
            return self.batch_norm(h, *(self.p[f"norm{layer}.{part}"]
                                        for part in ("gamma", "beta", "mean", "deviation")))
        return torch.nn.functional.layer_norm(h, h.shape[1:], self.p[f"norm{layer}.gamma"],
                                              self.p[f"norm{layer}.beta"], 1e-5)

    def batch_norm(self, h, gamma, beta, mean, deviation) -> torch.Tensor:
        """PyTorch moves the running statistics as it goes."""
        variance = deviation ** 2
        out = torch.nn.functional.batch_norm(h, mean, variance, gamma, beta, self.trains, 0.1, 1e-5)
        deviation.copy_(variance.sqrt())
        return out

    def biases_without_effect(self) -> list[torch.Tensor]:
        """Those in front of a BatchNorm, which subtracts them again."""
        if self.config.norm != "batch" or self.config.model == "resgcn":
            return []
        return [self.p[f"conv{layer}.bias"] for layer in range(1, self.config.layers)]

    def logits(self, epoch: int) -> torch.Tensor:
        self.epoch = epoch
        return getattr(self, self.config.model)()

    def gcn(self) -> torch.Tensor:
        return self.shallow(has_self=False)

    def sage(self) -> torch.Tensor:
        return self.shallow(has_self=True)

    def shallow(self, has_self: bool) -> torch.Tensor:
        config, p, h = self.config, self.p, self.x
        for layer in range(1, config.layers + 1):
            weight = p[f"conv{layer}.weight"]
            looks_around = layer <= config.layers - config.linear_layers
            if not looks_around:
                y = self.drop(h, layer) @ weight
            elif layer == 1 and self.precomputes:
                y = self.drop(self.matrix @ h, 1, stream=1) @ weight
            else:
                y = self.matrix @ self.drop(h, layer) @ weight
            if looks_around and has_self:
                y = y + self.drop(h, layer) @ p[f"conv{layer}.weight_self"]
            h = y + p[f"conv{layer}.bias"]
            if layer < config.layers:
                h = torch.relu(self.layer_norm(h, layer) if self.norm else h)
        return h

    def gcnii(self) -> torch.Tensor:
        config, p = self.config, self.p
        first = torch.relu(self.drop(self.x, 1) @ p["input.weight"] + p["input.bias"])
        h = first
        for layer in range(1, config.layers + 1):
            mixed = (1 - config.alpha) * (self.matrix @ self.drop(h,
                                                                  layer + 1)) + config.alpha * first
            beta = math.log(config.lambda_ / layer + 1)
            h = torch.relu((1 - beta) * mixed + beta * (mixed @ p[f"conv{layer}.weight"]))
        return self.drop(h, config.layers + 2) @ p["output.weight"] + p["output.bias"]

    def resgcn(self) -> torch.Tensor:
        config, p = self.config, self.p
        h = self.drop(self.x, 1) @ p["input.weight"] + p.get("input.bias", 0)
        for layer in range(1, config.layers + 1):
            e = self.drop(torch.relu(self.layer_norm(h, layer)), layer + 1)
            h = h + self.matrix @ e @ p[f"conv{layer}.weight"] + p.get(f"conv{layer}.bias", 0)
        e = self.drop(torch.relu(self.layer_norm(h, config.layers + 1)), config.layers + 2)
        return e @ p["output.weight"] + p["output.bias"]

    def appnp(self) -> torch.Tensor:
        config, p = self.config, self.p
        h = torch.relu(self.drop(self.x, 1) @ p["input.weight"] + p["input.bias"])
        predicted = z = self.drop(h, 2) @ p["output.weight"] + p["output.bias"]
        for _ in range(config.layers):
            z = (1 - config.alpha) * self.matrix @ z + config.alpha * predicted
        return z

    def gin(self) -> torch.Tensor:
        config, p, h = self.config, self.p, self.x
        matrix = torch.from_numpy(dense_adjacency(self.graph) + np.eye(self.graph.n_nodes))
        for layer in range(1, config.layers + 1):
            if layer == 1 and self.precomputes:
                summed = self.drop(matrix @ h, 1, stream=1)
            else:
                summed = matrix @ self.drop(h, layer)
            inner = summed @ p[f"conv{layer}.weight"] + p[f"conv{layer}.bias"]
            inner = torch.relu(self.layer_norm(inner, layer) if self.norm else inner)
            h = inner @ p[f"conv{layer}.weight2"] + p[f"conv{layer}.bias2"]
            h = torch.relu(h) if layer < config.layers else h
        return h

    def gat(self) -> torch.Tensor:
        config, p, h = self.config, self.p, self.x
        edges = dense_adjacency(self.graph) != 0
        if config.self_loops != "no":
            edges |= np.eye(len(edges), dtype=bool)
        edges = torch.from_numpy(edges)
        for layer in range(1, config.layers + 1):
            last = layer == config.layers
            heads = config.output_heads if last else config.heads
            u = (self.drop(h, layer) @ p[f"conv{layer}.weight"]).reshape(len(h), heads, -1)
            logit = ((u * p[f"conv{layer}.att_dst"]).sum(2)[:, None]
                     + (u * p[f"conv{layer}.att_src"]).sum(2)[None])       # (target, source, head)
            e = torch.nn.functional.leaky_relu(logit, 0.2)
            e = torch.where(edges[:, :, None], e, -math.inf)
            coefficient = torch.nan_to_num(torch.softmax(e, dim=1))
            y = torch.einsum("ijh,jhc->ihc", coefficient * self.kept_edges(heads, layer), u)
            h = (y.mean(1) if last else y.flatten(1)) + p[f"conv{layer}.bias"]
            if not last:
                h = torch.relu(self.layer_norm(h, layer) if self.norm else h)
        return h

    def kept_edges(self, heads: int, layer: int) -> torch.Tensor:
        """What the coefficient of (target, source, head) is multiplied by."""
        n, threshold = self.graph.n_nodes, round(self.config.attention_dropout * 65536)
        if not threshold:
            return torch.ones((n, n, heads), dtype=torch.float64)
        padded = -(-heads // 8) * 8
        key = philox.key(self.config.seed, self.epoch, layer, philox.DROPOUT, 7)
        bits = philox.bits16(key, np.arange(n), n * padded).reshape(n, n, padded)[:, :, :heads]
        scale = float(np.float32(65536 / (65536 - threshold)))
        return torch.from_numpy((bits >= threshold) * scale)

    def loss(self, logits: torch.Tensor) -> torch.Tensor:
        """The mean over train nodes."""
        used = torch.from_numpy(self.graph.split[0] == TRAIN)
        labels = torch.from_numpy(self.graph.labels)
        if labels.ndim == 2:
            parts = torch.nn.functional.binary_cross_entropy_with_logits(logits[used],
                                                                         labels[used].double(),
                                                                         reduction="sum")
            return parts / used.sum()
        return torch.nn.functional.cross_entropy(logits[used], labels[used].long())
