"""The sparse product on one core: native (fp32, bf16 storage) against SciPy, PyTorch CSR and DGL.

    python benchmarks/spmm.py --peers PYTHON

PYTHON is an interpreter with PyTorch and DGL (DGL needs an environment of its own); without one, or
where a package is missing there, that contender is left out with a note. One way to make it:

    python -m venv peers
    peers/bin/pip install torch==2.13.0 torch_geometric "numpy<2" scipy h5py packaging psutil
        requests tqdm networkx
    peers/bin/pip install --no-deps dgl==1.1.3 "setuptools<70"

The peers run in a process of their own that waits while others are timed: contenders alternate,
never overlap. Takes about three minutes.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import shlex
import sys
import tempfile

import numpy as np
import scipy.sparse as sp
from common import (
    Worker,
    copy_bandwidth,
    interleave,
    markdown_table,
    milliseconds,
    spread,
    timed,
    write_results,
)

from hpcgcn.backend.native import NativeBackend
from hpcgcn.graph.generate import generate_rmat, generate_sbm

WIDTHS = (1, 16, 41, 64, 128, 256, 602)
# for widths 64, 128, 256; elsewhere: no slower than DGL
TARGETS = {"SciPy": 4.0, "DGL": 2.0, "torch CSR": 3.0}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", default=os.environ.get("HPCGCN_PEERS_PYTHON"), metavar="PYTHON",
                        help="an interpreter with torch and dgl (default: $HPCGCN_PEERS_PYTHON)")
    parser.add_argument("--graph", choices=("sbm", "rmat"), default="sbm",
                        help="which power-law graph (default sbm)")
    parser.add_argument("--nodes", type=int, default=60_000)
    parser.add_argument("--degree", type=int, default=50)
    parser.add_argument("--widths", type=int, nargs="+", default=WIDTHS)
    parser.add_argument("--rounds", type=int, default=15,
                        help="calls of each contender at each width")
    parser.add_argument("--no-write", action="store_true",
                        help="print the table, leave benchmarks/results alone")
    return parser.parse_args()


def make_graph(args) -> tuple[np.ndarray, np.ndarray]:
    make = {"sbm": generate_sbm, "rmat": generate_rmat}[args.graph]
    graph = make(args.nodes, args.degree, n_features=1, n_classes=16, seed=0)
    return graph.indptr, graph.indices


def start_peers(args, folder) -> tuple[Worker | None, list[str], list[str]]:
    """The worker, its contenders, and notes on what is missing."""
    if not args.peers:
        return (None, [],
                ["No peers: give `--peers PYTHON` (see the docstring of benchmarks/spmm.py)."])
    worker = Worker(args.peers, pathlib.Path(__file__).parent / "spmm_peers.py", [folder])
    found = worker.hear()
    return worker, found["peers"], [f"{name} is missing: {why}."
                                    for name, why in found["missing"].items()]


def contenders_of(backend, matrix, scipy_matrix, x, worker, peers) -> dict:
    """name -> call that multiplies once and returns its seconds."""
    out, held = backend.zeros(x.shape), backend.empty(x.shape, np.uint16)
    backend.convert(x, held)
    contenders = {"native": timed(lambda: backend.spmm(matrix, x, out)),
                  "native bf16": timed(lambda: backend.spmm(matrix, held, out)),
                  "SciPy": timed(lambda: scipy_matrix @ x)}
    for name in peers:
        contenders[name] = lambda name=name: worker.ask(run=name)
    return contenders


def check(backend, matrix, scipy_matrix, x, worker):
    """All contenders compute the same thing, or the comparison is void."""
    out, expected = backend.empty(x.shape), scipy_matrix @ x
    backend.spmm(matrix, x, out)
    deviations = {"native": float(np.abs(out - expected).max()),
                  **(worker.ask(width=x.shape[1]) if worker else {})}
    allowed = 1e-4 * float(np.abs(expected).max())
    wrong = {name: value for name, value in deviations.items() if value > allowed}
    if wrong:
        sys.exit(f"results differ from SciPy's at width {x.shape[1]}: {wrong}")


def measure(args, indptr, indices, folder, bandwidth) -> tuple[list[dict], list[str]]:
    backend = NativeBackend(threads=1)
    n = len(indptr) - 1
    matrix = backend.csr(indptr, indices, n)
    scipy_matrix = sp.csr_array((np.ones(len(indices), np.float32), indices, indptr), shape=(n, n))
    np.save(f"{folder}/indptr.npy", indptr)
    np.save(f"{folder}/indices.npy", indices)
    worker, peers, notes = start_peers(args, folder)
    measured = []
    for width in args.widths:
        x = backend.empty((n, width))
        x[...] = np.random.default_rng(width).standard_normal((n, width), dtype=np.float32)
        np.save(f"{folder}/x-{width}.npy", x)
        check(backend, matrix, scipy_matrix, x, worker)
        seconds = interleave(contenders_of(backend, matrix, scipy_matrix, x, worker, peers),
                             args.rounds, budget=40)
        bytes_once = 2 * n * width * 4 + indices.nbytes + indptr.nbytes
        measured.append({"width": width, "roofline": bytes_once / bandwidth,
                         "gathered": len(indices) * width * 4,
                         "contenders": {name: spread(values) for name, values in seconds.items()}})
        print(f"width {width}: " + ", ".join(f"{name} {milliseconds(found)} ms"
                                             for name, found in measured[-1]["contenders"].items()),
              flush=True)
    if worker:
        worker.close()
    return measured, notes


def times_table(measured) -> str:
    names = list(measured[0]["contenders"])
    header = ["width", *names, "roofline", "native gathers GB/s"]
    rows = [[row["width"], *(milliseconds(row["contenders"][name]) for name in names),
             f"{row['roofline'] * 1e3:.2g}",
             f"{row['gathered'] / row['contenders']['native']['median'] / 1e9:.1f}"]
            for row in measured]
    return markdown_table(header, rows)


def ratios_table(measured) -> str:
    others = [name for name in measured[0]["contenders"] if name != "native"]
    rows = []
    for row in measured:
        native = row["contenders"]["native"]["median"]
        ratios = {name: row["contenders"][name]["median"] / native for name in others}
        rows.append([row["width"], *(f"{ratios[name]:.2f}" for name in others),
                     verdict(row["width"], ratios)])
    return markdown_table(["width", *others, "targets"], rows)


def verdict(width: int, ratios: dict) -> str:
    """Whether the targets of this width are met, by the contenders that are there."""
    targets = TARGETS if width in (64, 128, 256) else {"DGL": 1.0}
    missed = [f"{name} {target:g}x"
              for name, target in targets.items() if ratios.get(name, target) < target]
    return "missed: " + ", ".join(missed) if missed else "met"


def main():
    args = arguments()
    indptr, indices = make_graph(args)
    bandwidth = copy_bandwidth()
    with tempfile.TemporaryDirectory() as folder:
        measured, notes = measure(args, indptr, indices, folder, bandwidth)
    degrees = np.diff(indptr)
    isa = NativeBackend(threads=1).isa
    facts = (f"{args.graph} graph of {len(indptr) - 1} nodes and {len(indices)} entries "
             f"(degrees: median {int(np.median(degrees))}, largest {degrees.max()}), one core, "
             f"fp32, kernels at level {isa}. Milliseconds: median of the rounds ± half the "
             "distance of the quartiles, contenders in turn. Roofline: x, out, indices, indptr "
             f"moved once at the measured copy bandwidth of {bandwidth / 1e9:.1f} GB/s.")
    if "DGL" in measured[0]["contenders"]:
        notes.append(
            "DGL multiplies more than 256 columns in slices: its fast path crashes at 512.")
    sections = [facts, times_table(measured),
                "Times as fast as (medians); targets at 64, 128, 256: 4x SciPy, 2x DGL, 3x torch "
                "CSR, elsewhere: no slower than DGL.", ratios_table(measured), *notes]
    print("\n\n".join(sections[1:]))
    if not args.no_write:
        given = ["PYTHON" if word == args.peers else word for word in sys.argv[1:]]
        command = "python benchmarks/spmm.py " + shlex.join(given)
        data = {"graph": args.graph, "nodes": len(indptr) - 1, "entries": len(indices), "isa": isa,
                "copy_bandwidth": bandwidth, "widths": measured, "notes": notes}
        name = "spmm" if args.graph == "sbm" else f"spmm-{args.graph}"
        print("\nwritten:",
              write_results(name, "Sparse product on one core", command.strip(), sections, data))


if __name__ == "__main__":
    main()
