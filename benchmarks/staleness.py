"""What staleness and compression cost in accuracy: every method over seeds, ranks and partitions.

    python benchmarks/staleness.py sbm       the network benchmark's graph, random on 2 to 8 ranks
    python benchmarks/staleness.py real      six public graphs, 3 layers, METIS and random, 4 and 8
    python benchmarks/staleness.py bounds    bounds on the drift of stale rows, and what could take
                                             their place, on two of these graphs

Runs of one graph, cut and number of ranks share an MPI job. Each result is a line of
benchmarks/results/staleness-<which>.jsonl: a benchmark that was stopped goes on where it was. Seeds
are in the outer loop, so a table of fewer seeds is there early. Nothing is timed: the machine may
be busy. `real` needs HPCGCN_TEST_DATA; its learning rate and dropout are chosen per graph by the
validation score of `vanilla` on one rank.
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

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

PER_CLASS = ["--split", "per-class", "20/30/rest", "--splits", "1", "--largest-component"]
REAL = {
    "amazon-photo": ["npz", "npz/amazon-photo.npz", *PER_CLASS],
    "coauthor-cs": ["npz", "npz/coauthor-cs.npz", *PER_CLASS],
    "coauthor-physics": ["npz", "npz/coauthor-physics.npz", *PER_CLASS],
    "squirrel": ["npz", "heterophilous/squirrel.npz"],
    "wordnet3-lex45": ["npz", "npz/wordnet3-lex45.npz"],
    "pubmed": ["planetoid", "planetoid", "--name", "pubmed"],
}
SBM = ["--nodes", "40000", "--degree", "50", "--features", "128", "--classes", "16",
       "--homophily", "0.7", "--feature-noise", "2"]
MODEL = {"sbm": {"model": "sage", "layers": 3, "hidden": 128, "dropout": 0.5, "lr": 0.01,
                 "epochs": 100, "eval_every": 2},
         "real": {"model": "sage", "layers": 3, "hidden": 64, "epochs": 120, "eval_every": 4}}
MODEL["bounds"] = MODEL["real"] | {"lr": 0.01, "dropout": 0.5}
TUNED = [{"lr": lr, "dropout": dropout} for lr in (0.003, 0.01) for dropout in (0.5, 0.8)]
TARGET_GAP = 0.005                   # the target: half a point below vanilla's best validation
METHODS = {
    "sbm": {name: {"method": name} for name in ("vanilla", "pipegcn", "sylvie-a", "pipegcn-paper",
                                                "sylvie-paper")}
    | {"pipegcn, all stale": {"method": "pipegcn", "staleness": "1",
                              "stale_error": "inf"},
       "sylvie-a, all stale": {"method": "sylvie-a", "staleness": "1",
                               "stale_error": "inf"}},
    "real": {name: {"method": name}
             for name in ("vanilla", "pipegcn", "pipegcn-f", "pipegcn-g", "pipegcn-gf",
                          "sylvie-s", "sylvie-a", "varco", "bns", "no-communication",
                          "pipegcn-paper", "sylvie-paper")},
    "bounds": {"vanilla": {"method": "vanilla"}}
    | {f"{method}, {bound}": {"method": method, "stale_error": bound}
       for method in ("pipegcn", "sylvie-a") for bound in ("0.1", "0.3", "inf")}
    | {f"pipegcn, fresh for {n} epochs": {"method": "pipegcn", "stale_error": "inf",
                                          "buffer": f"fresh:{n}"} for n in (10, 30)}
    | {"pipegcn, extrapolated": {"method": "pipegcn", "stale_error": "inf",
                                 "buffer": "extrapolated"},
       "pipegcn, 0.1 and extrapolated": {"method": "pipegcn", "buffer": "extrapolated"}},
}
QUIET = {"threads": 1, "quiet": True, "checkpoint_every": 0, "stall_timeout": 0.0, "keep": 1}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", choices=("sbm", "real", "bounds"))
    parser.add_argument("--ranks", nargs="+", type=int)
    parser.add_argument("--cuts", nargs="+", choices=("metis", "random"))
    parser.add_argument("--graphs", nargs="+", choices=tuple(REAL))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--methods", nargs="+", metavar="M", help="only these, and vanilla")
    parser.add_argument("--extra", nargs="+", default=[], metavar="LABEL:KEY=VALUE[;KEY=VALUE]",
                        help="further settings to compare, such as 'eps .3:method=pipegcn;"
                             "stale_error=0.3'")
    parser.add_argument("--name", help="of the results (staleness-sbm, staleness-real)")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--table", action="store_true", help="only write the table again")
    parser.add_argument("--work", type=pathlib.Path,
                        default=pathlib.Path(tempfile.gettempdir()) / "hpcgcn-staleness")
    args = parser.parse_args()
    args.ranks = args.ranks or {"sbm": [2, 4, 8], "real": [4, 8], "bounds": [4]}[args.which]
    args.cuts = args.cuts or {"sbm": ["random"], "real": ["metis", "random"],
                              "bounds": ["metis"]}[args.which]
    args.graphs = args.graphs or (["amazon-photo", "squirrel"] if args.which == "bounds"
                                  else list(REAL))
    args.name = args.name or f"staleness-{args.which}"
    return args


def variants(args) -> dict[str, dict]:
    """{label: settings}."""
    known = METHODS[args.which]
    chosen = {label: settings for label, settings in known.items()
              if not args.methods or label in args.methods or label == "vanilla"}
    for text in args.extra:
        label, _, settings = text.partition(":")
        chosen[label] = dict(entry.split("=", 1) for entry in settings.split(";"))
    return chosen


# -- graphs ----------------------------------------------------------------------------------------

def command(*words):
    subprocess.run([sys.executable, "-m", "hpcgcn", *map(str, words)], check=True,
                   stdout=subprocess.DEVNULL)


def graph_file(args, name: str) -> pathlib.Path:
    path = args.work / f"{name}.h5"
    if path.exists():
        return path
    if name == "sbm":
        command("generate", "sbm", "-o", path, *SBM)
        return path
    data = os.environ.get("HPCGCN_TEST_DATA")
    if not data:
        sys.exit("set HPCGCN_TEST_DATA to the folder of the public data sets (data/README.md)")
    kind, source, *options = REAL[name]
    command("import", kind, os.path.join(data, source), "-o", path, *options)
    return path


def partition_file(args, graph: pathlib.Path, ranks: int, cut: str) -> pathlib.Path:
    path = graph.with_name(f"{graph.stem}-{ranks}-{cut}.h5")
    if not path.exists():
        command("partition", graph, "-n", ranks, "--method", cut, "-o", path)
    return path


# -- runs ------------------------------------------------------------------------------------------

def done(path: pathlib.Path) -> list[dict]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


def key_of(record: dict) -> tuple:
    return tuple(record[k] for k in ("graph", "cut", "ranks", "label", "seed"))


def start_job(args, ranks: int, source: pathlib.Path, tasks: list[dict], output: pathlib.Path):
    listing = args.work / f"tasks-{os.getpid()}.json"
    listing.write_text(json.dumps(tasks))
    # as tests start jobs: ranks that wait sleep, where there are more of them than cores
    sys.path.insert(0, str(HERE.parent / "tests"))
    from launch import command as launcher, rank_environment
    from oversubscribed import patient_environment
    subprocess.run(launcher(ranks, [sys.executable, __file__, "--job", listing, source, output]),
                   check=True, cwd=args.work, env=rank_environment(patient_environment(ranks)))


def job(listing: str, source: str, output: str):
    """On every rank: train all tasks, one after another; rank 0 writes what they reached."""
    from mpi4py import MPI
    from stale_buffers import buffers

    from hpcgcn import Config, train_model
    from hpcgcn.errors import HpcgcnError
    comm = MPI.COMM_WORLD
    with open(listing) as file:
        tasks = json.load(file)
    for number, task in enumerate(tasks):
        reports: list = []
        settings = QUIET | {"name": f"run-{os.getppid()}-{number}", "output": "runs",
                            "overwrite": True} | task["settings"]
        record = {k: task[k] for k in ("graph", "cut", "ranks", "label", "seed")}
        try:
            with buffers(settings.pop("buffer", "")):
                result = train_model(source, Config(**settings), comm, callback=reports.append)
        except HpcgcnError as error:
            record |= {"error": str(error)}
        else:
            best = result.summary["best"]
            record |= {"test": best["test"], "val": best["val"],
                       "bytes": result.summary["bytes_sent"],
                       "stale_share": result.summary["stale_share"],
                       "vals": [(report.epoch, report.scores["val"]) for report in reports
                                if report.scores]}
        if comm.rank == 0:
            with open(output, "a") as file:
                file.write(json.dumps(record) + "\n")


def tuned(args, name: str) -> dict:
    """The settings of TUNED with which vanilla has the best validation score, on one rank."""
    model = MODEL["real"] | ({"epochs": args.epochs} if args.epochs else {})
    path = args.work / f"{name}-tuned-{model['epochs']}.jsonl"
    tasks = [{"graph": name, "cut": "none", "ranks": 1, "label": json.dumps(choice), "seed": seed,
              "settings": model | choice | {"seed": 100 + seed}}
             for choice in TUNED for seed in range(2)]
    held = {key_of(record) for record in done(path)}
    missing = [task for task in tasks if key_of(task) not in held]
    if missing:
        start_job(args, 1, graph_file(args, name), missing, path)
    by_choice: dict[str, list[float]] = {}
    for record in done(path):
        by_choice.setdefault(record["label"], []).append(record.get("val") or 0.0)
    return json.loads(max(by_choice, key=lambda label: statistics.mean(by_choice[label])))


def train_all(args, output: pathlib.Path):
    graphs = ["sbm"] if args.which == "sbm" else args.graphs
    for seed in range(args.seeds):
        for name in graphs:
            model = MODEL[args.which] | (tuned(args, name) if args.which == "real" else {})
            model |= {"epochs": args.epochs} if args.epochs else {}
            for ranks in args.ranks:
                for cut in args.cuts:
                    tasks = [{"graph": name, "cut": cut, "ranks": ranks, "label": label,
                              "seed": seed, "settings": model | settings | {"seed": seed}}
                             for label, settings in variants(args).items()]
                    held = {key_of(record) for record in done(output)}
                    missing = [task for task in tasks if key_of(task) not in held]
                    if missing:
                        graph = graph_file(args, name)
                        start_job(args, ranks, partition_file(args, graph, ranks, cut), missing,
                                  output)


# -- tables ----------------------------------------------------------------------------------------

def epochs_to(record: dict, target: float) -> int | None:
    return next((epoch for epoch, val in record["vals"] if val >= target), None)


def write_table(args, output: pathlib.Path):
    from common import markdown_table, write_results
    records = [record for record in done(output) if "error" not in record]
    groups: dict[tuple, dict[str, list[dict]]] = {}
    for record in records:
        group = groups.setdefault((record["graph"], record["cut"], record["ranks"]), {})
        group.setdefault(record["label"], []).append(record)
    rows = [row for key in sorted(groups) for row in table_rows(key, groups[key])]
    header = ["graph", "cut", "ranks", "method", "seeds", "test %", "less than vanilla",
              "epochs to target", "of vanilla's", "stale share", "GB sent"]
    refused = [record for record in done(output) if "error" in record]
    notes = [f"- {record['label']} on {record['graph']}: {record['error']}" for record in refused
             if record["seed"] == 0]
    sections = [__doc__.split("\n\n")[0],
                "Means over seeds, test accuracy at the best validation score. The target is "
                f"{100 * TARGET_GAP:g} points below vanilla's best validation score, each seed on "
                "its own; `-`: some seed did not reach it.",
                markdown_table(header, rows), "\n".join(dict.fromkeys(notes))]
    page = write_results(args.name, "Accuracy of stale and compressed training",
                         " ".join(["python benchmarks/staleness.py", *sys.argv[1:]]), sections, {})
    print(f"written to {page}")


def table_rows(key: tuple, by_label: dict[str, list[dict]]) -> list[list[str]]:
    plain = {record["seed"]: record for record in by_label.get("vanilla", [])}
    rows = []
    for label, records in by_label.items():
        records = [record for record in records if record["seed"] in plain]
        if not records:
            continue
        gaps = [plain[r["seed"]]["test"] - r["test"] for r in records]
        needed, usual = [], []
        for r in records:
            target = max(val for _, val in plain[r["seed"]]["vals"]) - TARGET_GAP
            needed.append(epochs_to(r, target))
            usual.append(epochs_to(plain[r["seed"]], target))
        reached = None not in needed
        rows.append([*map(str, key), label, str(len(records)),
                     f"{100 * statistics.mean(r['test'] for r in records):.2f}",
                     f"{100 * statistics.mean(gaps):+.2f}",
                     f"{statistics.mean(needed):.0f}" if reached else "-",
                     f"{statistics.mean(needed) / statistics.mean(usual):.2f}" if reached else "-",
                     f"{statistics.mean(r['stale_share'] for r in records):.2f}",
                     f"{statistics.mean(r['bytes'] for r in records) / 1e9:.3f}"])
    return [[key[0], key[1], str(key[2]), *row[3:]] for row in rows]


def main():
    """Train what is missing, then write the table."""
    if sys.argv[1:2] == ["--job"]:
        return job(*sys.argv[2:])
    args = parse_arguments()
    args.work.mkdir(parents=True, exist_ok=True)
    output = HERE / "results" / f"{args.name}.jsonl"
    if not args.table:
        train_all(args, output)
    write_table(args, output)


if __name__ == "__main__":
    main()
