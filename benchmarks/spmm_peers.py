"""The peers of spmm.py, under an interpreter that has them: answers questions on standard input,
one JSON a line.

Started by spmm.py as `PYTHON spmm_peers.py FOLDER`, by gpu_spmm.py with two words more: the device
(cpu, cuda), and PyG if that is to take part; FOLDER holds indptr.npy, indices.npy and for each
width D asked for x-D.npy. A question is {"width": D} to load x (answer: the contenders' results'
largest deviation from SciPy's) or {"run": NAME} to multiply once (answer: seconds).
"""

import json
import sys
import time
import warnings

import numpy as np
import scipy.sparse as sp


def torch_csr(indptr, indices, device):
    import torch
    torch.set_num_threads(1)
    n = len(indptr) - 1
    matrix = torch.sparse_csr_tensor(torch.from_numpy(indptr),
                                     torch.from_numpy(indices.astype(np.int64)),
                                     torch.ones(len(indices)), size=(n, n)).to(device)
    return (lambda x: torch.from_numpy(x).to(device), lambda x: matrix @ x,
            lambda y: y.cpu().numpy())


def dgl_sum(indptr, indices, device):
    import dgl
    import torch
    torch.set_num_threads(1)
    graph = dgl.graph(("csc", (torch.from_numpy(indptr), torch.from_numpy(indices.astype(np.int64)),
                               torch.tensor([]))), num_nodes=len(indptr) - 1).int().to(device)
    if device != "cpu":
        return (lambda x: torch.from_numpy(x).to(device),
                lambda x: dgl.ops.copy_u_sum(graph, x), lambda y: y.cpu().numpy())
    # DGL 1.1.3 crashes at 512 columns and more in its fast path (libxsmm), and is several times
    # slower without it: a wide x is multiplied in slices, cut and joined off the clock.
    return (lambda x: [torch.from_numpy(np.ascontiguousarray(x[:, k:k + 256]))
                       for k in range(0, x.shape[1], 256)],
            lambda parts: [dgl.ops.copy_u_sum(graph, part) for part in parts],
            lambda parts: torch.cat(parts, dim=1).numpy())


def pyg_sum(indptr, indices, device):
    import torch
    from torch_geometric.nn import SimpleConv
    n = len(indptr) - 1
    targets = torch.repeat_interleave(torch.arange(n), torch.from_numpy(np.diff(indptr)))
    edges = torch.stack([torch.from_numpy(indices.astype(np.int64)), targets]).to(device)
    conv = SimpleConv(aggr="sum")
    return (lambda x: torch.from_numpy(x).to(device), lambda x: conv(x, edges),
            lambda y: y.cpu().numpy())


def load_peers(indptr, indices, device, more):
    """name -> (how to bring x over, to multiply, to bring the result back); what cannot be imported
    is left out."""
    peers, missing = {}, {}
    makers = {"torch CSR": torch_csr, "DGL": dgl_sum, **({"PyG": pyg_sum} if more else {})}
    for name, make in makers.items():
        try:
            peers[name] = make(indptr, indices, device)
        except Exception as error:  # noqa: BLE001
            missing[name] = f"{type(error).__name__}: {error}".splitlines()[0]
    return peers, missing


def wait(device):
    """Until the device has done what it was given."""
    if device != "cpu":
        import torch
        torch.cuda.synchronize()


def main(folder, device="cpu", *more):
    warnings.simplefilter("ignore")
    answers = sys.stdout
    sys.stdout = sys.stderr  # what packages print on import must not look like an answer
    indptr, indices = np.load(f"{folder}/indptr.npy"), np.load(f"{folder}/indices.npy")
    matrix = sp.csr_matrix((np.ones(len(indices), np.float32), indices, indptr))
    peers, missing = load_peers(indptr, indices, device, more)
    print(json.dumps({"peers": list(peers), "missing": missing}), file=answers, flush=True)
    inputs = {}
    for line in sys.stdin:
        question = json.loads(line)
        if "width" in question:
            x = np.load(f"{folder}/x-{question['width']}.npy")
            inputs = {name: bring(x) for name, (bring, _, _) in peers.items()}
            expected = matrix @ x
            answer = {name: float(np.abs(back(multiply(inputs[name])) - expected).max())
                      for name, (_, multiply, back) in peers.items()}
        else:
            multiply = peers[question["run"]][1]
            wait(device)
            start = time.perf_counter()
            multiply(inputs[question["run"]])
            wait(device)
            answer = time.perf_counter() - start
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
