"""Launches per epoch on the CUDA backend, and the host's time for them, without a GPU.

    python benchmarks/cuda_launches.py                  writes results/cuda-launches.md; 3 minutes

The stand-in for CuPy is used and every launch replaced by a count, so what is timed is the Python
of an epoch: it must be shorter than the work of the device, or the device waits for it. Blocks of
rows that fit a CPU's cache are compared with those that the backend asks for.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections import Counter

os.environ["HPCGCN_CUDA_STAND_IN"] = "1"

from common import markdown_table, write_results
from mpi4py import MPI

from hpcgcn.backend.base import Backend
from hpcgcn.backend.cuda import CudaBackend
from hpcgcn.config import make_config
from hpcgcn.graph.data import Part
from hpcgcn.graph.generate import generate_sbm
from hpcgcn.mpi.runtime import Runtime
from hpcgcn.nn.models import MODELS
from hpcgcn.train.trainer import Trainer


class CountingBackend(CudaBackend):
    """Counts launches and matrix products, and does neither."""

    def __init__(self, block_bytes: int, graphs: bool):
        super().__init__(graphs=graphs)
        self.block_bytes, self.counts = block_bytes, Counter()

    def launch(self, name, grid, block, args, shared_mem=0):
        self.counts["kernels"] += 1

    def gemm(self, a, b, out, transpose_a=False, transpose_b=False, accumulate=False, alpha=1.0):
        self.counts["products"] += 1

    def _loss(self, name, logits, labels, scale, dlogits) -> float:
        super()._loss(name, logits, labels, scale, dlogits)
        return 1.0                                   # nothing was computed: any number will do

    def _copy_on_device(self, source, target):
        self.counts["copies"] += 1


def measure(graph, model: str, layers: int, hidden: int, block_bytes: int, epochs: int,
            graphs: bool = False) -> dict:
    """Counts of the last epoch, and the median of the seconds of all but the first two."""
    backend = CountingBackend(block_bytes, graphs)
    config = make_config({"backend": "cuda", "model": model, "layers": layers, "hidden": hidden,
                          "epochs": epochs, "threads": 1, "cuda_graphs": graphs})
    with Runtime(MPI.COMM_SELF) as runtime:
        trainer = Trainer(runtime, backend, Part.whole(graph), config)
        seconds = []
        for _ in range(epochs):
            backend.counts.clear()
            began = time.perf_counter()
            trainer.run_epoch()
            seconds.append(time.perf_counter() - began)
        trainer.close()
    return {**backend.counts, "milliseconds": statistics.median(seconds[2:]) * 1e3}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=9)
    parser.add_argument("--dry", action="store_true", help="print, write nothing")
    given = parser.parse_args()
    graph = generate_sbm(given.nodes, 6, 64, 10, seed=0)
    rows, data = [], {}
    for model in MODELS:
        layers = 8 if model in ("gcnii", "resgcn") else 3
        before, after, replayed = (
            measure(graph, model, layers, given.hidden, size, given.epochs, graphs)
            for size, graphs in ((Backend.block_bytes, False), (CudaBackend.block_bytes, False),
                                 (CudaBackend.block_bytes, True)))
        data[model] = {"layers": layers, "cache blocks": before, "device blocks": after,
                       "graph": replayed}
        rows.append([f"{model}, {layers} layers",
                     *(f"{found['kernels']} + {found.get('products', 0)}"
                       for found in (before, after)),
                     f"{replayed['kernels']} + the graph",
                     *(f"{found['milliseconds']:.1f}" for found in (before, after, replayed))])
        print(rows[-1], flush=True)
    if given.dry:
        return 0
    text = (f"{given.nodes} nodes on one rank, hidden width {given.hidden}: kernels + matrix "
            "products per epoch of training, with blocks of rows of 1 MiB (a CPU's cache), of "
            f"{CudaBackend.block_bytes >> 20} MiB (what the backend asks for), and with "
            "--cuda-graphs. Host milliseconds: the Python of an epoch on the stand-in with every "
            "launch replaced by a count; CuPy's own time to launch comes on top, per launch.")
    table = markdown_table(["model", "launches, cache blocks", "launches, device blocks",
                            "launches, --cuda-graphs", "host ms, cache blocks",
                            "host ms, device blocks", "host ms, --cuda-graphs"], rows)
    print(write_results("cuda-launches", "Launches per epoch on the CUDA backend",
                        "python benchmarks/cuda_launches.py", [text, table], data))
    return 0


if __name__ == "__main__":
    sys.exit(main())
