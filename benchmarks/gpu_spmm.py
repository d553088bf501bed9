"""The sparse product on one GPU: hpcgcn (fp32, bf16 storage) against cuSPARSE through CuPy, and
PyTorch CSR, DGL and PyG where they are installed.

    python benchmarks/gpu_spmm.py --peers PYTHON --json spmm.json

All contenders multiply the same matrix and are compared with SciPy first. Times are of the host
between two synchronisations, of so many products that launching does not count. On the stand-in
(HPCGCN_CUDA_STAND_IN=1) peers run on the CPU: a rehearsal, whose numbers mean nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import sys
import tempfile
import time

import numpy as np
import scipy.sparse as sp
from common import Worker, interleave, markdown_table, milliseconds, spread

from hpcgcn.backend.cuda import CudaBackend
from hpcgcn.backend.cuda_device import uses_stand_in
from hpcgcn.graph.generate import generate_sbm

PEERS = pathlib.Path(__file__).with_name("spmm_peers.py")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", default=os.environ.get("HPCGCN_PEERS_PYTHON", sys.executable),
                        metavar="PYTHON", help="an interpreter with torch, dgl, torch_geometric")
    parser.add_argument("--nodes", type=int, default=200_000)
    parser.add_argument("--degree", type=int, default=50)
    parser.add_argument("--widths", type=int, nargs="+", default=(16, 41, 64, 128, 256))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=10, help="products between synchronisations")
    parser.add_argument("--json", metavar="FILE", help="write what was measured there")
    return parser.parse_args()


def timed_calls(call, synchronize, n_calls: int):
    """A contender: seconds per call."""
    def run() -> float:
        synchronize()
        began = time.perf_counter()
        for _ in range(n_calls):
            call()
        synchronize()
        return (time.perf_counter() - began) / n_calls
    return run


def ours(backend, matrix, x, n_calls: int) -> dict:
    """hpcgcn's products: the contenders, and the result of the first."""
    there, out = backend.from_host(x), backend.zeros(x.shape)
    held = backend.empty(x.shape, np.uint16)
    backend.convert(there, held)
    backend.spmm(matrix, there, out)
    result = backend.to_host(out)
    contenders = {name: timed_calls(lambda given=given: backend.spmm(matrix, given, out),
                                    backend.synchronize, n_calls)
                  for name, given in (("hpcgcn", there), ("hpcgcn bf16", held))}
    return {"contenders": contenders, "result": result}


def cusparse(backend, scipy_matrix, x, n_calls: int) -> dict:
    """CuPy's product, which is cuSPARSE's."""
    import cupy
    import cupyx.scipy.sparse as device_sparse
    matrix = device_sparse.csr_matrix(scipy_matrix)
    there = cupy.asfortranarray(cupy.asarray(x))         # the layout that cuSPARSE takes as it is
    result = cupy.asnumpy(matrix @ there)
    return {"contenders": {"cuSPARSE": timed_calls(lambda: matrix @ there, backend.synchronize,
                                                   n_calls)}, "result": result}


def measure(args, folder: str) -> tuple[list[dict], list[str]]:
    graph = generate_sbm(args.nodes, args.degree, n_features=1, n_classes=16, seed=0)
    indptr, indices, n = graph.indptr, graph.indices, graph.n_nodes
    np.save(f"{folder}/indptr.npy", indptr)
    np.save(f"{folder}/indices.npy", indices)
    scipy_matrix = sp.csr_matrix((np.ones(len(indices), np.float32), indices, indptr), (n, n))
    backend = CudaBackend()
    matrix = backend.csr(indptr, indices, n)
    device = "cpu" if uses_stand_in() else "cuda"
    worker = Worker(args.peers, PEERS, [folder, device, "PyG"])
    heard = worker.hear()
    notes = [f"{name} is missing: {why}" for name, why in heard["missing"].items()]
    if uses_stand_in():
        notes.append("cuSPARSE is missing: the stand-in has no cuSPARSE")
    measured = []
    for width in args.widths:
        x = np.random.default_rng(width).standard_normal((n, width), dtype=np.float32)
        np.save(f"{folder}/x-{width}.npy", x)
        expected = scipy_matrix @ x
        sides = [ours(backend, matrix, x, args.calls)]
        if not uses_stand_in():
            sides.append(cusparse(backend, scipy_matrix, x, args.calls))
        deviations = {next(iter(side["contenders"])): float(np.abs(side["result"] - expected).max())
                      for side in sides} | worker.ask(width=width)
        wrong = {name: value for name, value in deviations.items()
                 if not value <= 1e-4 * float(np.abs(expected).max())}
        if wrong:
            sys.exit(f"results differ from SciPy's at width {width}: {wrong}")
        contenders = {name: call for side in sides for name, call in side["contenders"].items()}
        for name in heard["peers"]:
            contenders[name] = lambda name=name: worker.ask(run=name)
        seconds = interleave(contenders, args.rounds, budget=60)
        gathered = 4 * width * (len(indices) + n)
        measured.append({"width": width, "bytes": gathered,
                         "contenders": {name: spread(values) for name, values in seconds.items()}})
    worker.close()
    return measured, notes


def table(measured: list[dict]) -> tuple[list[str], list[list[str]]]:
    """Milliseconds by width, and how many bytes per second hpcgcn asks for."""
    names = list(measured[0]["contenders"])
    header = ["width", *(f"{name}, ms" for name in names), "hpcgcn asks for, GB/s"]
    return header, [[str(row["width"]),
                     *(milliseconds(row["contenders"][name]) for name in names),
                     f"{row['bytes'] / row['contenders']['hpcgcn']['median'] / 1e9:.0f}"]
                    for row in measured]


def main():
    args = arguments()
    with tempfile.TemporaryDirectory() as folder:
        measured, notes = measure(args, folder)
    header, rows = table(measured)
    print(markdown_table(header, rows), *notes, sep="\n")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps({"header": header, "rows": rows,
                                                       "notes": notes, "widths": measured}))


if __name__ == "__main__":
    main()
