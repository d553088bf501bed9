"""What history costs in accuracy: deep GCNII by pipelines of 2 and 4 stages and by a 2 x 2 hybrid,
beside exact training.

    HPCGCN_TEST_DATA=... python benchmarks/gnnpipe_accuracy.py  all of it: hours on one core
    HPCGCN_TEST_DATA=... python benchmarks/gnnpipe_accuracy.py --graphs squirrel --ways exact
        2-stages --seeds 0

A pipeline's numbers depend on its chunks and their order alone, not on how many ranks share the
layers or a chunk (tests/strategies/test_history.py holds every grid to one serial reference). So
each run takes place on one rank, with the chunks that the grid would have; --ranks runs the grid
itself. Every finished run is kept in results/gnnpipe-accuracy.jsonl and not repeated. Writes
benchmarks/results/gnnpipe-accuracy.md.
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

from common import RESULTS, markdown_table, write_results

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

PER_CLASS = ["--split", "per-class", "20/30/rest", "--splits", "10", "--largest-component",
             "--normalise-features", "row"]
GRAPHS = {"coauthor-physics": ["npz", "npz/coauthor-physics.npz", *PER_CLASS],
          "squirrel": ["npz", "heterophilous/squirrel.npz"]}
# (ways, stages) of a grid, and settings; the last four leave out one of the paper's techniques
# each, then all.
GRIDS = {"exact": None, "2-stages": (1, 2), "4-stages": (1, 4), "2x2-hybrid": (2, 2)}
TECHNIQUES = {"4-stages, same order": {"shuffle_chunks": False},
              "4-stages, snapshot every epoch": {"history_hold": 1},
              "4-stages, last epoch's gradients": {"history_gradients": "stale"},
              "4-stages, none of the three": {"shuffle_chunks": False, "history_hold": 1,
                                              "history_gradients": "stale"}}
WAYS = (*GRIDS, *TECHNIQUES)
SETTINGS = {"model": "gcnii", "layers": 32, "dropout": 0.5, "alpha": 0.1, "lambda": 0.5, "lr": 0.01,
            "weight_decay": 5e-4, "weight_decay_conv": 0.01, "eval_every": 5, "checkpoint_every": 0,
            "threads": 1, "quiet": True}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", nargs="+", choices=tuple(GRAPHS), default=list(GRAPHS))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), metavar="W",
                        help="; ".join(WAYS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--ranks", action="store_true",
                        help="run on the grid's own number of ranks")
    parser.add_argument("--table", action="store_true", help="only write the table of what is done")
    parser.add_argument("--work", type=pathlib.Path,
                        default=pathlib.Path(tempfile.gettempdir()) / "hpcgcn-gnnpipe")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    return parser.parse_args()


def imported(work: pathlib.Path, graph: str) -> pathlib.Path:
    """The graph file of a data set, made if it is not there."""
    path = work / f"{graph}.h5"
    if not path.exists():
        work.mkdir(parents=True, exist_ok=True)
        data = (os.environ.get("HPCGCN_TEST_DATA")
                or sys.exit("set HPCGCN_TEST_DATA to the folder of the data sets"))
        kind, source, *choices = GRAPHS[graph]
        subprocess.run([sys.executable, "-m", "hpcgcn", "import", kind, os.path.join(data, source),
                        "-o", path, *choices], check=True, stdout=subprocess.DEVNULL)
    return path


def chunk_file(path: pathlib.Path, grid: tuple[int, int], seed: int) -> tuple[pathlib.Path, int]:
    """A partition file whose parts are what a grid works on at one time: a chunk, or one of every
    way."""
    import numpy as np

    from hpcgcn.graph.store import read_graph, write_partition
    from hpcgcn.parallel.layers.chunks import chunks_per_partition, make_chunking
    ways, stages = grid
    n_chunks = chunks_per_partition(0, ways * stages, ways)
    target = path.with_name(f"{path.stem}-{ways}x{stages}-seed{seed}.h5")
    if not target.exists():
        graph = read_graph(path)
        chunking = make_chunking(graph, ways, n_chunks, "metis", "volume", seed)
        part = np.empty(graph.n_nodes, np.int32)
        part[chunking.order] = np.concatenate([np.repeat(np.arange(n_chunks), np.diff(ends))
                                               for ends in chunking.chunks])
        write_partition(target, graph, part, settings={"n_parts": n_chunks})
    return target, n_chunks


def grid_of(way: str) -> tuple[int, int] | None:
    return GRIDS[way.split(",")[0]]


def train(args: argparse.Namespace, run: dict):
    """One run, on all ranks of this job; rank 0 keeps its result."""
    from hpcgcn.config import make_config
    from hpcgcn.graph.store import header
    from hpcgcn.mpi.world import on_root, world
    from hpcgcn.train.run import train_model
    comm = world()
    grid, more = grid_of(run["way"]), dict(TECHNIQUES.get(run["way"], {}))
    source = imported(args.work, run["graph"])
    if grid:
        more |= {"method": "gnnpipe"}
        if comm.size > 1:
            more |= {"ways": grid[0], "stages": grid[1]}
        else:
            source, more["chunks"] = on_root(comm, chunk_file, source, grid, run["seed"])
    several = header(source)["n_splits"] > 1
    config = make_config(SETTINGS | more | {
        "seed": run["seed"], "split_index": run["seed"] % 10 if several else 0,
        "hidden": run["hidden"], "epochs": run["epochs"], "output": str(args.work / "runs"),
        "name": f"run-{os.getpid() if comm.size == 1 else 'ranks'}", "overwrite": True})
    result = train_model(source, config, comm)
    if comm.rank == 0 and not result.exit_code:
        summary = result.summary
        found = run | {"ranks": comm.size, "best": summary["best"]["test"],
                       "last": summary["final"]["test"], "at_chance": summary["at_chance"],
                       "history": summary.get("pipeline", {}).get("reads_by_age", {}),
                       "seconds_per_epoch": summary["seconds_per_epoch"]}
        with open(results_path(), "a") as file:
            file.write(json.dumps(found) + "\n")
        print(found, flush=True)


def results_path() -> pathlib.Path:
    RESULTS.mkdir(exist_ok=True)
    return RESULTS / "gnnpipe-accuracy.jsonl"


def done_runs() -> list[dict]:
    path = results_path()
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def key_of(run: dict) -> tuple:
    return tuple(run[name] for name in ("graph", "way", "seed", "hidden", "epochs"))


def percent(runs: list[dict], name: str) -> str:
    values = [100 * run[name] for run in runs]
    return (f"{statistics.mean(values):.1f} ± "
            f"{statistics.stdev(values) if len(values) > 1 else 0:.1f}")


def table(runs: list[dict]) -> str:
    """Test scores by graph and way, each beside exact training of the same seeds."""
    groups = {}
    for run in runs:
        groups.setdefault((run["graph"], run["hidden"], run["epochs"]),
                          {}).setdefault(run["way"], {})[run["seed"]] = run
    lines = []
    for (graph, hidden, epochs), ways in groups.items():
        for way in (w for w in WAYS if w in ways):
            mine, exact = ways[way], ways.get("exact", {})
            both = sorted(set(mine) & set(exact))
            gap = statistics.mean(100 * (mine[s]["best"] - exact[s]["best"])
                                  for s in both) if both and way != "exact" else None
            old = statistics.mean(1 - run["history"].get("current", 1) for run in mine.values())
            chance = sum(run["at_chance"] for run in mine.values())
            lines.append([graph, f"{hidden}, {epochs}", way, len(mine),
                          percent(list(mine.values()), "best"),
                          percent(list(mine.values()), "last"),
                          "" if gap is None else f"{gap:+.1f}", f"{100 * old:.0f}", chance])
    return markdown_table(["graph", "width, epochs", "trained by", "seeds",
                           "test %, best validation", "test %, last epoch",
                           "to exact", "reads from history %", "runs at chance"], lines)


def main():
    args = parse_arguments()
    if args.one:
        return train(args, json.loads(args.one))
    wanted = [{"graph": graph, "way": way, "seed": seed, "hidden": args.hidden,
               "epochs": args.epochs}
              for graph in args.graphs for seed in args.seeds for way in WAYS if way in args.ways]
    for run in [] if args.table else wanted:
        if key_of(run) in {key_of(done) for done in done_runs()}:
            continue
        grid = grid_of(run["way"])
        starter = ["mpirun", "--oversubscribe", "-n",
                   str(grid[0] * grid[1])] if args.ranks and grid else []
        subprocess.run([*starter, sys.executable, __file__, "--one", json.dumps(run), "--work",
                        args.work], check=True)
    settings = ", ".join(f"{key} {value}" for key, value in SETTINGS.items()
                         if key not in ("threads", "quiet", "checkpoint_every"))
    page = write_results("gnnpipe-accuracy", "Accuracy of pipelines with history", " ".join(
        ["python benchmarks/gnnpipe_accuracy.py", *(a for a in sys.argv[1:] if a != "--table")]), [
            f"Settings: {settings}. Mean and standard deviation over seeds; seed k uses split k. "
            "`exact` is what partition parallelism computes on any number of ranks. A pipeline "
            "has 4 chunks a rank; the 2 x 2 hybrid works on two of them at a time.",
            table(done_runs())], {"settings": SETTINGS})
    print(page.read_text())


if __name__ == "__main__":
    main()
