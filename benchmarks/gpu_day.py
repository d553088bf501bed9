"""Everything that a machine with GPUs can show, in order, in one report. `make gpu-day` runs it.

    python benchmarks/gpu_day.py [--output FOLDER] [--peers PYTHON] [--only WORD ...]

Tests on the device, the same under compute-sanitizer, messages in all three ways, the sparse
product and whole epochs against others, and the node's GPUs side by side. A step that fails stops
no other and makes the exit code 1; one that cannot run here is skipped and says why. With
HPCGCN_CUDA_STAND_IN=1 it is a rehearsal without a GPU, on small graphs. Logs of all programs are in
the folder, beside report.html.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from common import machine as facts_of_machine
from gpu import checks, contests, trainings
from gpu.page import page
from gpu.sanitizer import TOOLS
from gpu.steps import FAILED, Day, carry_out

from hpcgcn.backend.cuda_device import load_cupy, uses_stand_in
from hpcgcn.errors import BackendError

STEPS = {
    "machine": checks.machine,
    "tests": checks.suite,
    **{f"compute-sanitizer {tool}": checks.sanitized(tool) for tool in TOOLS},
    **{f"presets as on the CPU, {way}": trainings.presets_as_on_the_cpu(way)
       for way in trainings.WAYS},
    "messages: staged, CUDA-aware, NCCL": trainings.ways_of_messages,
    "an epoch as a CUDA graph": trainings.graphs,
    "SpMM against others": contests.spmm,
    "epoch against others": contests.epoch,
    "scaling over the GPUs of this node": trainings.scaling,
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("runs/gpu-day"), metavar="FOLDER",
                        help="where logs and report.html go (default runs/gpu-day)")
    parser.add_argument("--peers", default=os.environ.get("HPCGCN_PEERS_PYTHON", sys.executable),
                        metavar="PYTHON", help="an interpreter with PyTorch, DGL and PyG "
                        "(default: $HPCGCN_PEERS_PYTHON, or this one)")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD",
                        help="only steps with one of these words in their names")
    return parser.parse_args()


def main() -> int:
    given = arguments()
    try:
        n_devices = load_cupy().cuda.runtime.getDeviceCount()
    except BackendError as error:
        print(f"gpu-day: {error}; HPCGCN_CUDA_STAND_IN=1 makes it a rehearsal", file=sys.stderr)
        return 2
    steps = {title: step for title, step in STEPS.items()
             if not given.only or any(word in title for word in given.only)}
    if not steps:
        print(f"gpu-day: no step has {' or '.join(given.only)} in its name: {'; '.join(STEPS)}",
              file=sys.stderr)
        return 2
    folder = given.output.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    day = Day(folder, uses_stand_in(), n_devices, given.peers)
    outcomes = []
    for title, step in steps.items():
        outcome = carry_out(day, title, step)
        outcomes.append(outcome)
        print(f"{outcome.state:8}{outcome.seconds:6.0f} s  {title}"
              + (f": {outcome.reason}" if outcome.reason else ""), flush=True)
        # after every step: whoever ends the day early has what was found by then
        (folder / "report.html").write_text(page(day, outcomes, facts_of_machine()))
        (folder / "report.json").write_text(json.dumps([asdict(o) for o in outcomes], indent=1))
    print(f"report: {folder / 'report.html'}")
    return 1 if any(outcome.state == FAILED for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
