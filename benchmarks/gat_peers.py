"""A peer of gat.py, under an interpreter that has it: GATConv of DGL or PyG.

    gat_peers.py NAME FOLDER SETTINGS

Questions, one JSON a line: {"run": true} (answer: seconds of one epoch,
and of all threads) or {"memory": true}.
"""

import json
import os
import resource
import sys
import time
import warnings

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


def peak() -> int:
    """The greatest resident size so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def with_dgl(edges, n_nodes: int):
    """(graph, convolution(d_in, columns, heads, attention dropout))"""
    import dgl
    graph = dgl.add_self_loop(dgl.graph((edges[0], edges[1]), num_nodes=n_nodes)).int()
    return graph, lambda d_in, columns, heads, dropout: dgl.nn.GATConv(d_in, columns, heads,
                                                                       attn_drop=dropout)


def with_pyg(edges, n_nodes: int):
    """The same for PyG, whose layers add self loops themselves in every pass: here once."""
    from torch_geometric.nn import GATConv
    loops = torch.arange(n_nodes)
    edges = torch.cat([edges, torch.stack([loops, loops])], dim=1)
    return edges, lambda d_in, columns, heads, dropout: GATConv(
        d_in, columns, heads, dropout=dropout, add_self_loops=False)


class Stack(nn.Module):
    """Layers with their heads side by side, then one with a single head."""

    def __init__(self, convolution, graph, data, asked: dict, in_order: bool):
        super().__init__()
        self.graph, self.p, self.in_order = graph, asked["dropout"], in_order
        layers, heads, dropout = asked["layers"], asked["heads"], asked["attention_dropout"]
        columns = asked["hidden"] // heads
        widths = [data["x"].shape[1], *[asked["hidden"]] * (layers - 1)]
        self.convs = nn.ModuleList([convolution(width, columns, heads, dropout)
                                    for width in widths[:-1]]
                                   + [convolution(widths[-1], data["n_classes"], 1, dropout)])

    def forward(self, x):
        for number, conv in enumerate(self.convs):
            x = F.dropout(x, self.p)
            pair = (self.graph, x) if self.in_order else (x, self.graph)
            x = conv(*pair).flatten(1)
            x = x if number == len(self.convs) - 1 else F.relu(x)
        return x


def main(name: str, folder: str, asked: str):
    warnings.simplefilter("ignore")
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    answers, sys.stdout = sys.stdout, sys.stderr  # what packages print must not look like an answer

    def answer(value):
        print(json.dumps(value), file=answers, flush=True)

    try:
        __import__({"DGL": "dgl", "PyG": "torch_geometric"}[name])
    except Exception as error:  # noqa: BLE001
        return answer({"missing": f"{type(error).__name__}: {error}".splitlines()[0]})
    before = peak()
    x = torch.from_numpy(np.load(f"{folder}/features.npy").astype(np.float32))
    y = torch.from_numpy(np.load(f"{folder}/labels.npy").astype(np.int64))
    train = torch.from_numpy(np.load(f"{folder}/train.npy"))
    edges = torch.from_numpy(np.load(f"{folder}/edges.npy"))
    graph, convolution = {"DGL": with_dgl, "PyG": with_pyg}[name](edges, len(x))
    del edges
    data = {"x": x, "n_classes": int(y.max()) + 1}
    network = Stack(convolution, graph, data, json.loads(asked), name == "DGL")
    optimiser = torch.optim.Adam(network.parameters(), lr=0.01)
    answer({})
    for line in sys.stdin:
        if "memory" in json.loads(line):
            answer({"peak": peak(), "libraries": before})
            continue
        began, before_it = time.perf_counter(), time.process_time()
        optimiser.zero_grad()
        F.cross_entropy(network(x)[train], y[train]).backward()
        optimiser.step()
        answer((time.perf_counter() - began, time.process_time() - before_it))


if __name__ == "__main__":
    main(*sys.argv[1:])
