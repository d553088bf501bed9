"""Accuracy on the public graphs beside what was published: GCN, GraphSAGE, GCNII and GAT, 1 and 4
ranks, mean over seeds.

    HPCGCN_TEST_DATA=... python benchmarks/accuracy.py  all of it: hours on two cores
    HPCGCN_TEST_DATA=... python benchmarks/accuracy.py --graphs cora --models gcn --ranks 1
    HPCGCN_TEST_DATA=... python benchmarks/accuracy.py --precision bf16 --ranks 1 ...
        beside the same seeds in fp32

Settings are those of data/configs. Every finished run is kept in benchmarks/results/accuracy.jsonl
and not repeated, so an interrupted benchmark goes on where it was. Writes
benchmarks/results/accuracy.md, or accuracy-bf16.jsonl and .md.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

from methods import idle_sleep

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
sys.path.insert(0, ROOT)

MODELS = ("gcn", "sage", "gcnii", "gat")
PER_CLASS = ["--split", "per-class", "20/30/rest", "--splits", "10", "--largest-component",
             "--normalise-features", "row"]
PLANETOID = ["planetoid", "planetoid", "--normalise-features", "row", "--name"]

# Data set -> how it is imported; sources are relative to HPCGCN_TEST_DATA. With ten splits, seed k
# uses split k.
GRAPHS = {
    "cora": [*PLANETOID, "cora"], "citeseer": [*PLANETOID, "citeseer"],
    "pubmed": [*PLANETOID, "pubmed"],
    # Its settings were chosen while looking at test scores of the splits of seed 0: these are
    # others.
    "amazon-photo": ["npz", "npz/amazon-photo.npz", *PER_CLASS, "--seed", "10"],
    "coauthor-cs": ["npz", "npz/coauthor-cs.npz", *PER_CLASS],
    "coauthor-physics": ["npz", "npz/coauthor-physics.npz", *PER_CLASS],
    "squirrel": ["npz", "heterophilous/squirrel.npz"],
    "tolokers": ["npz", "heterophilous/tolokers.npz"],
    "wordnet3-lex45": ["npz", "npz/wordnet3-lex45.npz"],
    "blogcatalog3-10k": ["npz", "npz/blogcatalog3-10k.npz", "--split", "random", "60/20/20",
                         "--splits", "10",
                         "--make-features", "identity"],
}
# What was published, in per cent, and at which epoch its authors take the score.
PUBLISHED = {
    ("cora", "gcn"): (81.5, "last"), ("citeseer", "gcn"): (70.3, "last"),
    ("pubmed", "gcn"): (79.0, "last"), ("cora", "gcnii"): (85.5, "best"),
    ("coauthor-cs", "gcn"): (91.1, "best"), ("coauthor-physics", "gcn"): (92.8, "best"),
    ("amazon-photo", "gcn"): (91.2, "best"),
    ("cora", "gat"): (83.0, "best"), ("citeseer", "gat"): (72.5, "best"),
    ("pubmed", "gat"): (79.0, "best"),
}
NOTES = """- Cora, Citeseer, Pubmed: Kipf and Welling's settings as published; nothing was tuned.
- GAT: the published settings, but ReLU between layers instead of ELU, and one score to stop by:
  patience of 100 epochs without a better validation accuracy. Nothing was tuned.
- Coauthor: the same with width 64, fewer epochs, rows normalised after a look at two splits showed
  raw features 2 points lower.
- Amazon-Photo: the settings were chosen among about ten by test scores on the splits of seed 0,
  where the first choice (dropout 0.5, weight decay 5e-5, 200 epochs) gave 89.5 ± 1.4 over ten
  splits. The row here is of other splits (seed 10), which no choice has seen.
- Models without a published number use sage.toml, gcn.toml and gcnii.toml, which were tuned for no
  data set, but for GCN on BlogCatalog (larger steps without decay: with gcn.toml no class becomes
  likely enough) and GCNII on Amazon-Photo, Coauthor-CS and BlogCatalog, whose settings were chosen
  among about ten, three and four by the validation scores of three splits, with other seeds
  (gcnii.toml stays near chance on Photo and BlogCatalog, and is 6 points lower on Coauthor-CS).
- 1 and 4 ranks draw the same numbers for the same seed, so rows differ by rounding and what it
  grows into.
- Tolokers: accuracy (its authors report ROC AUC: tolokers.md). BlogCatalog: micro-F1.
"""


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", nargs="+", choices=tuple(GRAPHS), default=list(GRAPHS),
                        metavar="G", help=", ".join(GRAPHS))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--ranks", nargs="+", type=int, default=[1, 4])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1, help="threads per rank (1)")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32",
                        help="of rows that are gathered (fp32)")
    parser.add_argument("--results", default=os.path.join(HERE, "results"))
    parser.add_argument("--work", default=os.path.join(tempfile.gettempdir(), "hpcgcn-accuracy"),
                        help="graphs and run folders")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    return parser.parse_args()


def config_of(graph: str, model: str) -> str:
    """The settings file of a data set and model, or the model's own."""
    folder = os.path.join(ROOT, "data", "configs")
    named = os.path.join(folder, f"{graph}-{model}.toml")
    # Those of Tolokers are for another score: benchmarks/tolokers.py.
    own = os.path.exists(named) and graph != "tolokers"
    return named if own else os.path.join(folder, f"{model}.toml")


def imported(args, graph: str) -> str:
    """The graph file of a data set, made if it is not there."""
    from hpcgcn.cli import main
    path = os.path.join(args.work, f"{graph}.h5")
    if not os.path.exists(path):
        data = (os.environ.get("HPCGCN_TEST_DATA")
                or sys.exit("set HPCGCN_TEST_DATA to the folder of the data sets"))
        format_name, source, *choices = GRAPHS[graph]
        if main(["import", format_name, os.path.join(data, source), "-o", path, *choices]):
            sys.exit(f"{graph} cannot be imported")
    return path


def results_path(args, precision: str, suffix: str = "jsonl") -> str:
    return os.path.join(args.results,
                        f"accuracy{'' if precision == 'fp32' else '-' + precision}.{suffix}")


def read_results(path: str) -> list[dict]:
    """The runs that are done."""
    if not os.path.exists(path):
        return []
    with open(path) as file:
        return [json.loads(line) for line in file if line.endswith("}\n")]


def key_of(run: dict) -> tuple:
    return run["graph"], run["model"], run["ranks"], run["seed"]


def missing_runs(args, done: list[dict], ranks: int) -> list[dict]:
    """The runs that are asked for and not done, published ones first."""
    known = {key_of(run) for run in done}
    wanted = [{"graph": graph, "model": model, "ranks": ranks, "seed": seed,
               "config": config_of(graph, model), "file": imported(args, graph)}
              for model in args.models for graph in args.graphs for seed in range(args.seeds)]
    return [run
            for run in sorted(wanted, key=lambda run: (run["graph"], run["model"]) not in PUBLISHED)
            if key_of(run) not in known]


def work(args):
    """Inside an MPI job: train all runs of a list, one after the other."""
    from hpcgcn.config import make_config
    from hpcgcn.graph.store import header
    from hpcgcn.mpi.world import world
    from hpcgcn.train.run import train_model
    comm = world()
    with open(args.worker) as file:
        runs = json.load(file)
    for run in runs:
        several = header(run["file"])["n_splits"] > 1
        config = make_config({"seed": run["seed"], "split_index": run["seed"] % 10 if several
                              else 0, "threads": args.threads, "precision": args.precision,
                              "quiet": True, "stall_timeout": 0.0, "overwrite": True,
                              "output": os.path.join(args.work, "runs"),
                              "name": "-".join(map(str, key_of(run)))}, run["config"])
        result = train_model(run["file"], config, comm)
        if result.exit_code:
            sys.exit(result.exit_code)  # asked to stop in the middle of a run: it does not count
        summary = result.summary
        if comm.rank == 0:
            found = {**{name: run[name] for name in ("graph", "model", "ranks", "seed")},
                     "last": summary["final"]["test"],
                     "best": summary["best"]["test"], "best_epoch": summary["best"]["epoch"],
                     "seconds_per_epoch": summary["seconds_per_epoch"]}
            with open(results_path(args, args.precision), "a") as file:
                file.write(json.dumps(found) + "\n")
            print(found, flush=True)


def table(runs: list[dict]) -> str:
    """All runs as Markdown."""
    groups: dict[tuple, list[dict]] = {}
    for run in runs:
        groups.setdefault((run["graph"], run["model"], run["ranks"]), []).append(run)
    order = sorted(groups,
                   key=lambda key: (list(GRAPHS).index(key[0]), MODELS.index(key[1]), key[2]))
    lines = ["| graph | model | ranks | seeds | test, last epoch | test, best validation | "
             "published | difference |", "|---|---|---|---|---|---|---|---|"]
    for graph, model, ranks in order:
        group = groups[graph, model, ranks]
        published, when = PUBLISHED.get((graph, model), (None, None))
        difference = (f"{statistics.mean(100 * run[when] for run in group) - published:+.1f}"
                      if published else "")
        shown = f"{published} ({when})" if published else ""
        cells = (graph, model, ranks, len(group), spread(group, "last"), spread(group, "best"),
                 shown, difference)
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def spread(group: list[dict], when: str) -> str:
    """Mean and standard deviation in per cent."""
    values = [100 * run[when] for run in group]
    return (f"{statistics.mean(values):.1f} ± "
            f"{statistics.stdev(values) if len(values) > 1 else 0:.1f}")


def write_comparison(args, runs: list[dict]):
    """Rows gathered in 16 bits beside the same seeds in fp32."""
    plain = {key_of(run): run for run in read_results(results_path(args, "fp32"))}
    pairs: dict[tuple, list] = {}
    for run in runs:
        if key_of(run) in plain:
            pairs.setdefault(key_of(run)[:3], []).append((plain[key_of(run)], run))
    lines = ["| graph | model | ranks | seeds | test in fp32 | test in bf16 | difference ± "
             "standard error |", "|---|---|---|---|---|---|---|"]
    for key, both in pairs.items():
        change = [100 * (low["best"] - full["best"]) for full, low in both]
        error = statistics.stdev(change) / len(change) ** 0.5 if len(change) > 1 else float("nan")
        cells = (*key, len(both),
                 *(spread([pair[side] for pair in both], "best") for side in (0, 1)),
                 f"{statistics.mean(change):+.2f} ± {error:.2f}")
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    head = """# Accuracy with `--precision bf16`

Activations that are gathered from neighbours are stored in bf16; sums, weights and everything else
stay in fp32. Test score in per cent at the epoch of the best validation score, mean and standard
deviation over seeds; the same seeds in both. Made by
`python benchmarks/accuracy.py --precision bf16`.

"""
    with open(results_path(args, args.precision, "md"), "w") as file:
        file.write(head + "\n".join(lines) + "\n")


def write_table(args, runs: list[dict]):
    if args.precision != "fp32":
        return write_comparison(args, runs)
    head = f"""# Accuracy

Mean and standard deviation over seeds, in per cent, of the test score after the last epoch and at
the epoch of the best validation score. With ten splits in a file, seed k uses split k. Settings:
data/configs; made by `python benchmarks/accuracy.py`. The difference is to the published number,
taken at the epoch its authors take theirs.

{NOTES}
"""
    with open(results_path(args, "fp32", "md"), "w") as file:
        file.write(head + table(runs) + "\n")


def main():
    args = parse_arguments()
    if args.worker:
        return work(args)
    os.makedirs(args.results, exist_ok=True)
    os.makedirs(args.work, exist_ok=True)
    results = results_path(args, args.precision)
    for ranks in args.ranks:
        runs = missing_runs(args, read_results(results), ranks)
        if runs:
            jobs = os.path.join(args.work, f"jobs-{ranks}-{os.getpid()}.json")
            with open(jobs, "w") as file:
                json.dump(runs, file)
            command = [sys.executable, os.path.abspath(__file__), "--worker", jobs, "--results",
                       args.results, "--work", args.work,
                       "--threads", str(args.threads), "--precision", args.precision]
            starter = ["mpirun", "--oversubscribe", "-n", str(ranks)] if ranks > 1 else []
            environment = dict(os.environ,
                               **(idle_sleep(args.work) if ranks > (os.cpu_count() or 1) else {}))
            subprocess.run([*starter, *command], check=True, env=environment)
        write_table(args, read_results(results))


if __name__ == "__main__":
    main()
