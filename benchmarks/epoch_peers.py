"""The peers of epoch.py, under an interpreter that has them: PyTorch CSR, DGL and PyG, each
training the same model.

Questions, one JSON a line: {"build": settings} (answer: the contenders) or {"run": NAME} (answer:
seconds of one epoch). The input is aggregated once for GCN and GraphSAGE, as in hpcgcn. All use the
peers' own layers and kernels. A second word after the folder is the device (cpu, cuda).
"""

import json
import math
import os
import sys
import time
import warnings

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class CsrProduct(torch.autograd.Function):
    """A x with A^T at hand, so that PyTorch need not transpose in every backward pass."""

    @staticmethod
    def forward(ctx, matrix, transposed, x):
        ctx.transposed = transposed
        return matrix @ x

    @staticmethod
    def backward(ctx, gradient):
        return None, None, ctx.transposed @ gradient


class Data:
    """The graph as the peers need it."""

    def __init__(self, folder, device):
        self.device = device
        load = {name: np.load(f"{folder}/{name}.npy")
                for name in ("indptr", "indices", "features", "labels", "train")}
        self.indptr, self.indices = load["indptr"], load["indices"].astype(np.int64)
        self.n = len(self.indptr) - 1
        self.x = torch.from_numpy(load["features"].astype(np.float32)).to(device)
        self.y = torch.from_numpy(load["labels"].astype(np.int64)).to(device)
        self.train = torch.from_numpy(load["train"]).to(device)
        self.n_classes = int(self.y.max()) + 1

    def csr(self, kind):
        """(A, A^T) with the normalisation of the model: the mean of neighbours, or symmetric with
        self loops."""
        import scipy.sparse as sp
        matrix = sp.csr_matrix((np.ones(len(self.indices), np.float32), self.indices, self.indptr),
                               shape=(self.n, self.n))
        if kind == "sage":
            degree = np.maximum(np.diff(self.indptr), 1)
            matrix = sp.diags((1 / degree).astype(np.float32)) @ matrix
        else:
            matrix = matrix + sp.eye(self.n, dtype=np.float32, format="csr")
            scale = sp.diags(np.asarray(matrix.sum(axis=1)).ravel().astype(np.float32) ** -0.5)
            matrix = scale @ matrix @ scale
        return tuple(self._tensor(m.tocsr()) for m in (matrix, matrix.T))

    def _tensor(self, matrix):
        matrix.sort_indices()
        return torch.sparse_csr_tensor(torch.from_numpy(matrix.indptr.astype(np.int64)),
                                       torch.from_numpy(matrix.indices.astype(np.int64)),
                                       torch.from_numpy(matrix.data.astype(np.float32)),
                                       size=matrix.shape).to(self.device)


class Network(nn.Module):
    """The model around a library's aggregation: `spread(l, h)` is A h of layer l, with that
    library's kernels."""

    def __init__(self, data, ask, aggregate):
        super().__init__()
        kind, hidden, layers = ask["model"], ask["hidden"], ask["layers"]
        self.kind, self.p, self.aggregate, self.x = kind, ask["dropout"], aggregate, data.x
        if kind == "gcnii":
            self.first, self.last = nn.Linear(data.x.shape[1],
                                              hidden), nn.Linear(hidden, data.n_classes)
            self.weights = nn.ModuleList(nn.Linear(hidden, hidden, bias=False)
                                         for _ in range(layers))
            return
        self.input = aggregate(data.x).detach()
        widths = [data.x.shape[1], *[hidden] * (layers - 1), data.n_classes]
        self.neighbour = nn.ModuleList(nn.Linear(a, b, bias=kind == "gcn")
                                       for a, b in zip(widths, widths[1:]))
        self.self_ = nn.ModuleList(nn.Linear(a, b)
                                   for a, b in zip(widths, widths[1:])) if kind == "sage" else None
        self.norms = nn.ModuleList(nn.LayerNorm(hidden)
                                   for _ in range(layers - 1)) if kind == "sage" else None

    def forward(self):
        return self.deep() if self.kind == "gcnii" else self.shallow()

    def shallow(self):
        h = self.x
        for layer, neighbour in enumerate(self.neighbour):
            dropped = F.dropout(h, self.p)
            if layer == 0:
                z = neighbour(F.dropout(self.input, self.p))
            elif neighbour.out_features < neighbour.in_features:
                # the cheaper order, for the peers too
                z = self.aggregate(F.linear(dropped, neighbour.weight))
                z = z if neighbour.bias is None else z + neighbour.bias
            else:
                z = neighbour(self.aggregate(dropped))
            h = z + self.self_[layer](dropped) if self.self_ else z
            if layer < len(self.neighbour) - 1:
                h = F.relu(self.norms[layer](h) if self.norms else h)
        return h

    def deep(self):
        initial = h = F.relu(self.first(F.dropout(self.x, self.p)))
        for number, weight in enumerate(self.weights, 1):
            beta = math.log(0.5 / number + 1)
            t = 0.9 * self.aggregate(F.dropout(h, self.p)) + 0.1 * initial
            h = F.relu((1 - beta) * t + beta * weight(t))
        return self.last(F.dropout(h, self.p))


def torch_csr(data, ask):
    matrix, transposed = data.csr(ask["model"])
    return Network(data, ask, lambda h: CsrProduct.apply(matrix, transposed, h))


def dgl_network(data, ask):
    import dgl
    graph = dgl.graph(("csc", (torch.from_numpy(data.indptr), torch.from_numpy(data.indices),
                               torch.tensor([]))), num_nodes=data.n).to(data.device)
    if ask["model"] == "sage":
        graph = graph.int()
        return Network(data, ask, lambda h: dgl.ops.copy_u_mean(graph, h))
    graph = dgl.add_self_loop(graph).int()
    scale = graph.in_degrees().float().pow(-0.5)[:, None]
    return Network(data, ask, lambda h: scale * dgl.ops.copy_u_sum(graph, scale * h))


def pyg_network(data, ask):
    from torch_geometric.nn import SimpleConv
    from torch_geometric.nn.conv.gcn_conv import gcn_norm
    targets = torch.repeat_interleave(torch.arange(data.n), torch.from_numpy(np.diff(data.indptr)))
    edges = torch.stack([torch.from_numpy(data.indices), targets]).to(data.device)
    if ask["model"] == "sage":
        conv = SimpleConv(aggr="mean")
        return Network(data, ask, lambda h: conv(h, edges))
    edges, weights = gcn_norm(edges, None, data.n)
    conv = SimpleConv(aggr="sum")
    return Network(data, ask, lambda h: conv(h, edges, weights))


PEERS = {"torch CSR": (torch_csr, "torch"), "DGL": (dgl_network, "dgl"),
         "PyG": (pyg_network, "torch_geometric")}


def importable():
    missing = {}
    for name, (_, module) in PEERS.items():
        try:
            __import__(module)
        except Exception as error:  # noqa: BLE001
            missing[name] = f"{type(error).__name__}: {error}".splitlines()[0]
    return [name for name in PEERS if name not in missing], missing


def wait(device):
    """Until the device has done what it was given."""
    if device != "cpu":
        torch.cuda.synchronize()


def main(folder, device="cpu"):
    warnings.simplefilter("ignore")
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    answers, sys.stdout = sys.stdout, sys.stderr  # what packages print must not look like an answer
    data, (names, missing) = Data(folder, device), importable()
    print(json.dumps({"peers": names, "missing": missing}), file=answers, flush=True)
    running = {}
    for line in sys.stdin:
        question = json.loads(line)
        if "build" in question:
            running.clear()
            for name in names:
                network = PEERS[name][0](data, question["build"]).to(device)
                running[name] = (network, torch.optim.Adam(network.parameters(), lr=0.01))
            print(json.dumps(names), file=answers, flush=True)
            continue
        network, optimiser = running[question["run"]]
        wait(device)
        began = time.perf_counter()
        optimiser.zero_grad()
        F.cross_entropy(network()[data.train], data.y[data.train]).backward()
        optimiser.step()
        wait(device)
        print(json.dumps(time.perf_counter() - began), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
