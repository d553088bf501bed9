"""ROC AUC of GraphSAGE on the ten splits of Tolokers beside what was published, on 1 and 4 ranks.

    HPCGCN_TEST_DATA=... python benchmarks/tolokers.py
    HPCGCN_TEST_DATA=... python benchmarks/tolokers.py --ranks 1 --splits 0 1

Settings: data/configs/tolokers-sage.toml. The scores of every trained model are compared with
scikit-learn's of the same outputs, collected on one rank. A finished run is kept in
benchmarks/results/tolokers.jsonl and not repeated. Takes about ten minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from methods import idle_sleep

HERE = pathlib.Path(__file__).resolve().parent
CONFIG = HERE.parent / "data" / "configs" / "tolokers-sage.toml"
PUBLISHED, ALLOWED = 82.4, 1.5       # per cent; how far the mean may be from it
# The settings were chosen among four by the validation score of the first split; scores of its test
# nodes were on the screen, too.
CHOSEN_ON = 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", nargs="+", type=int, default=[1, 4])
    parser.add_argument("--splits", nargs="+", type=int, default=list(range(10)))
    parser.add_argument("--epochs", type=int, default=0, help="0: those of the settings")
    parser.add_argument("--results", type=pathlib.Path, default=HERE / "results")
    parser.add_argument("--work", default=os.path.join(tempfile.gettempdir(), "hpcgcn-tolokers"),
                        help="graph and run folders")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def graph_file(args) -> str:
    """The imported graph, made if it is not there."""
    from hpcgcn.cli import main
    path = os.path.join(args.work, "tolokers.h5")
    if not os.path.exists(path):
        data = (os.environ.get("HPCGCN_TEST_DATA")
                or sys.exit("set HPCGCN_TEST_DATA to the folder of the data sets"))
        source = os.path.join(data, "heterophilous", "tolokers.npz")
        if main(["import", "npz", source, "-o", path]):
            sys.exit("Tolokers cannot be imported")
    return path


def read_results(args) -> list[dict]:
    """The runs that are done."""
    path = args.results / "tolokers.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def work(args):
    """Inside an MPI job: train on the splits, one after the other."""
    from hpcgcn import open_model
    from hpcgcn.config import make_config
    from hpcgcn.mpi.world import world
    from hpcgcn.train.run import train_model
    comm = world()
    for split in args.splits:
        name = f"{comm.size}-{split}"
        config = make_config({"seed": split, "split_index": split, "threads": 1, "quiet": True,
                              "stall_timeout": 0.0, "overwrite": True, "name": name,
                              "output": os.path.join(args.work, "runs"),
                              **({"epochs": args.epochs} if args.epochs else {})}, str(CONFIG))
        result = train_model(graph_file(args), config, comm)
        if result.exit_code:
            sys.exit(result.exit_code)  # asked to stop in the middle of a run: it does not count
        with_best = open_model(os.path.join(args.work, "runs", name), graph_file(args), comm=comm)
        scores, difference = with_best.scores(), from_scikit_learn(with_best)
        with_best.close()
        if comm.rank == 0:
            best = result.summary["best"]
            found = {"ranks": comm.size, "split": split, "val": best["val"], "test": best["test"],
                     "epoch": best["epoch"], "evaluated": scores["test"],
                     "scikit_learn": difference}
            with open(args.results / "tolokers.jsonl", "a") as file:
                file.write(json.dumps(found) + "\n")
            print(found, flush=True)


def from_scikit_learn(model) -> float:
    """The greatest difference of the three scores from scikit-learn's, on rank 0. Collective."""
    import numpy as np
    from sklearn.metrics import roc_auc_score

    from hpcgcn.graph.data import SPLIT_NAMES
    ours, labels = model.scores(), model.engine.labels
    parts = model.comm.gather((model.logits(), labels.host, labels.split))
    if parts is None:
        return 0.0
    logits, classes, split = (np.concatenate(pieces) for pieces in zip(*parts))
    wide = logits.astype(np.float64)
    difference = wide[:, 1] - wide[:, 0]
    return max(abs(ours[name] - roc_auc_score(classes[split == code], difference[split == code]))
               for code, name in SPLIT_NAMES.items())


def write_table(args, runs: list[dict]):
    """Mean and standard deviation over the splits, by ranks."""
    lines = ["| ranks | splits | validation | test | published | difference | "
             "greatest difference from scikit-learn |", "|---|---|---|---|---|---|---|"]
    for ranks in sorted({run["ranks"] for run in runs}):
        group = [run for run in runs if run["ranks"] == ranks]
        difference = 100 * statistics.mean(run["test"] for run in group) - PUBLISHED
        apart = max(run["scikit_learn"] for run in group)
        lines.append(f"| {ranks} | {len(group)} | {spread(group, 'val')} | {spread(group, 'test')} "
                     f"| {PUBLISHED} | {difference:+.1f} | {apart:.1g} |")
    others = [run for run in runs if run["split"] != CHOSEN_ON]
    text = f"""# ROC AUC on Tolokers

GraphSAGE on the ten splits of the data set, in per cent, at the epoch of the best validation
score: mean and standard deviation; seed k with split k. Settings: data/configs/tolokers-sage.toml,
chosen among four by the validation score of split {CHOSEN_ON}, while its test score was shown, too
(without that split: test {spread(others, 'test')} over {len(others)} runs). The published number is
of five layers or fewer, 512 wide, with residual connections (Platonov et al., ICLR 2023). The last
column compares the scores of the trained models on train, validation and test nodes with
scikit-learn's, from the same outputs collected on one rank. Made by
`python benchmarks/tolokers.py`.

""" + "\n".join(lines) + "\n"
    (args.results / "tolokers.md").write_text(text)


def spread(group: list[dict], key: str) -> str:
    values = [100 * run[key] for run in group]
    return (f"{statistics.mean(values):.1f} ± "
            f"{statistics.stdev(values) if len(values) > 1 else 0:.1f}")


def main():
    args = parse_arguments()
    if args.worker:
        return work(args)
    os.makedirs(args.work, exist_ok=True)
    graph_file(args)
    for ranks in args.ranks:
        done = {(run["ranks"], run["split"]) for run in read_results(args)}
        missing = [str(split) for split in args.splits if (ranks, split) not in done]
        if missing:
            words = ["--worker", "--splits", *missing, "--epochs", str(args.epochs), "--results",
                     str(args.results), "--work", args.work]
            starter = ["mpirun", "--oversubscribe", "-n", str(ranks)] if ranks > 1 else []
            sleeping = idle_sleep(args.work) if ranks > (os.cpu_count() or 1) else {}
            subprocess.run([*starter, sys.executable, __file__, *words], check=True,
                           env=os.environ | {"OMP_NUM_THREADS": "1"} | sleeping)
        write_table(args, read_results(args))


if __name__ == "__main__":
    main()
