"""Steps that compare with others on one GPU: the sparse product, and whole epochs."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from common import milliseconds

from gpu.steps import ROOT, Day, Found, Table

BENCHMARKS = ROOT / "benchmarks"


def spmm(day: Day, found: Found):
    """Against cuSPARSE, and PyTorch, DGL and PyG where they are installed."""
    answer = day.folder / "spmm.json"
    widths = [16, 41] if day.rehearsal else [16, 41, 64, 128, 256]
    day.run("spmm", [sys.executable, BENCHMARKS / "gpu_spmm.py", "--peers", day.peers, "--nodes",
                     day.size(200_000, 150), "--degree", day.size(50, 8), "--rounds",
                     day.size(15, 1), "--calls", day.size(10, 1), "--json", answer, "--widths",
                     *widths], 1800)
    result = json.loads(answer.read_text())
    found.tables.append(Table(result["header"], result["rows"]))
    found.notes += result["notes"]


def peers_can(day: Day) -> str:
    """Empty if the interpreter of the peers can use this device, or why not."""
    asks = "import torch" + ("" if day.rehearsal else "; torch.zeros(1).cuda()")
    done = subprocess.run([day.peers, "-c", asks], capture_output=True, text=True,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})
    return (done.stderr.strip().splitlines() or ["it says nothing"])[-1] if done.returncode else ""


def epoch(day: Day, found: Found):
    """An epoch on one GPU against PyTorch CSR, DGL and PyG."""
    why_not = peers_can(day)
    peers = [] if why_not else ["--peers", day.peers]
    if why_not:
        found.notes.append(f"PyTorch, DGL and PyG are left out: {why_not}")
    answer = day.folder / "epoch.json"
    models = ["gcn"] if day.rehearsal else ["sage", "gcn", "gcnii"]
    day.run("epoch", [sys.executable, BENCHMARKS / "epoch.py", "--no-write", "--json", answer,
                      "--ranks", 1, "--backend", "cuda", "--device",
                      "cpu" if day.rehearsal else "cuda", "--nodes", day.size(200_000, 120),
                      "--degree", day.size(50, 8), "--features", day.size(128, 12), "--classes",
                      day.size(41, 4), "--hidden", day.size(256, 16), "--rounds",
                      day.size(15, 1), "--models", *models, *peers], 3600)
    result = json.loads(answer.read_text())
    names = list(dict.fromkeys(name for row in result["models"].values() for name in row))
    found.tables.append(Table(["model", *(f"{name}, ms" for name in names)],
                              [[model, *(milliseconds(row[name]) if name in row else ""
                                         for name in names)]
                               for model, row in result["models"].items()]))
    found.notes += result["notes"]
