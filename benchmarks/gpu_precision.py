"""What rounding the inputs of matrix products costs: test scores with --precision tf32 and bf16.

    HPCGCN_TEST_DATA=... python benchmarks/gpu_precision.py       writes results/gpu-precision.md

On the reference backend, which rounds as tensor cores do (but for TF32's ties) and adds up in fp32:
the rounding is that of a GPU, the machine is not. The same seeds and splits in each precision;
with bf16 rows that are gathered are stored in 16 bits, too.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile

from accuracy import config_of, imported
from common import markdown_table, write_results

from hpcgcn.config import make_config
from hpcgcn.graph.store import header
from hpcgcn.train.run import train_model

GRAPHS = ("cora", "citeseer", "pubmed", "amazon-photo", "coauthor-cs")
PRECISIONS = ("fp32", "tf32", "bf16")


def score(args, graph: str, model: str, seed: int, precision: str) -> float:
    """The test score, in per cent, at the epoch of the best validation score."""
    path = imported(args, graph)
    several = header(path)["n_splits"] > 1
    config = make_config({"seed": seed, "split_index": seed % 10 if several else 0,
                          "backend": "reference", "precision": precision, "quiet": True,
                          "overwrite": True, "output": os.path.join(args.work, "runs"),
                          "name": f"{graph}-{model}-{seed}-{precision}"}, config_of(graph, model))
    return 100 * train_model(path, config).summary["best"]["test"]


def shown(values: list[float]) -> str:
    return f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}"


def paired(plain: list[float], rounded: list[float]) -> str:
    """Mean difference of the same seeds and its standard error."""
    differences = [b - a for a, b in zip(plain, rounded)]
    error = statistics.stdev(differences) / len(differences) ** 0.5
    return f"{statistics.mean(differences):+.2f} ± {error:.2f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", nargs="+", default=list(GRAPHS))
    parser.add_argument("--model", default="gcn")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--work", default=os.path.join(tempfile.gettempdir(), "hpcgcn-precision"))
    args = parser.parse_args()
    os.makedirs(args.work, exist_ok=True)
    rows, data = [], {}
    for graph in args.graphs:
        found = {precision: [score(args, graph, args.model, seed, precision)
                             for seed in range(args.seeds)] for precision in PRECISIONS}
        data[graph] = found
        rows.append([graph, args.model, args.seeds, *(shown(found[p]) for p in PRECISIONS),
                     *(paired(found["fp32"], found[p]) for p in PRECISIONS[1:])])
        print(rows[-1], flush=True)
        table = markdown_table(["graph", "model", "seeds", *(f"test in {p}" for p in PRECISIONS),
                                "tf32 - fp32", "bf16 - fp32"], rows)
        text = ("Test score in per cent at the epoch of the best validation score, mean and "
                "standard deviation over seeds; differences of the same seeds with their standard "
                "error. Inputs of matrix products rounded to 10 (tf32) or 7 (bf16) bits of "
                "mantissa, sums in fp32; bf16 also stores gathered rows in 16 bits. On the "
                "reference backend: no GPU was used.")
        write_results("gpu-precision", "Accuracy with `--precision tf32` and `bf16`",
                      " ".join(["python benchmarks/gpu_precision.py", *sys.argv[1:]]),
                      [text, table], data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
