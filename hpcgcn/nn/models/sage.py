"""GraphSAGE (Hamilton, Ying and Leskovec): h' = relu(mean(h) W + h W_self + b)."""

from __future__ import annotations

from hpcgcn.nn.models.base import register
from hpcgcn.nn.models.gcn import GCN


@register
class GraphSAGE(GCN):
    """GCN's layers over the mean of the neighbours, plus a product of the node's own row."""

    name, title = "sage", "GraphSAGE"
    normalisation = "mean"
    self_loops = False
    norm = True
    adds_own_row = True
    out_degrees_in = ()
    weight_names = {"pyg": {"weight": ("lin_l.weight", True), "bias": ("lin_l.bias", False),
                            "weight_self": ("lin_r.weight", True)},
                    "dgl": {"weight": ("fc_neigh.weight", True), "bias": ("fc_self.bias", False),
                            "weight_self": ("fc_self.weight", True)}}
