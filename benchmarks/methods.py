"""Every method on the same graph, model and ranks: accuracy over seeds, speed, bytes, and what a
target accuracy costs.

    python benchmarks/methods.py cora                     a data set of GRAPHS below
    python benchmarks/methods.py my.h5 --set model=gcn    any graph file

One MPI job trains all configurations, so start-up is paid once; a run that is complete is not
repeated, so an interrupted benchmark goes on where it was. Writes
benchmarks/results/methods-<graph>.md, .json and .png. Takes minutes (Cora) to an hour (2 cores).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.dirname(HERE))

PER_CLASS = ["--split", "per-class", "20/30/rest", "--splits", "5"]

# How each data set is imported, and settings with which plain training is good.
GRAPHS = {
    "cora": (["planetoid", "planetoid", "--name", "cora", "--normalise-features", "row",
              *PER_CLASS], {"model": "gcn", "layers": 2, "hidden": 128, "weight_decay": 5e-4,
                            "lr_schedule": "cosine", "epochs": 200}),
    "coauthor-cs": (["npz", "npz/coauthor-cs.npz", *PER_CLASS],
                    {"model": "gcn", "layers": 2, "hidden": 32, "weight_decay": 5e-4,
                     "lr_schedule": "cosine", "epochs": 100}),
    "squirrel": (["npz", "heterophilous/squirrel.npz"], {"model": "sage", "layers": 2, "hidden": 32,
                                                         "lr_schedule": "cosine", "epochs": 120}),
    "amazon-photo": (["npz", "npz/amazon-photo.npz", *PER_CLASS],
                     {"model": "gcn", "layers": 3, "hidden": 64, "norm": "yes", "precompute": "yes",
                      "lr_schedule": "cosine", "epochs": 100}),
}

# Beside the presets: what error feedback, residual coding, bias correction and more of the nodes
# add.
EXTRAS = {
    "sylvie-s, feedback": {"method": "sylvie-s", "error_feedback": True, "rounding": "nearest"},
    "sylvie-a, feedback": {"method": "sylvie-a", "error_feedback": True, "rounding": "nearest"},
    "sylvie-s, residual": {"method": "sylvie-s", "residual": True, "rounding": "nearest"},
    "bns, half": {"method": "bns", "rate": "2"},
    "pipegcn-gf, corrected": {"method": "pipegcn-gf", "smooth_correction": True},
}


def variants(wanted: list[str] | None) -> dict[str, dict]:
    """{label: settings} of every preset and extra, or of those asked for; `vanilla` is always
    there."""
    from hpcgcn.exchange.presets import PRESETS
    # The partition family: feature parallelism is exact and has a benchmark of its own.
    known = {name: {"method": name}
             for name, preset in PRESETS.items() if "parallel" not in preset.settings} | EXTRAS
    for name in wanted or []:
        if name not in known:
            sys.exit(f"no variant '{name}': choose among {'; '.join(known)}")
    return {name: known[name]
            for name in known if not wanted or name in wanted or name == "vanilla"}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph", help=f"a graph file, or one of {', '.join(GRAPHS)}")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=5, help="runs of each method (5)")
    parser.add_argument("--methods", nargs="+", metavar="M", help="only these, and vanilla")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--model")
    parser.add_argument("--eval-every", type=int, default=5)
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE",
                        help="further settings, as in TOML")
    parser.add_argument("--target", type=float, default=0.99,
                        help="target as a share of vanilla's accuracy (0.99)")
    parser.add_argument("--results", default=os.path.join(HERE, "results"),
                        help="where the tables go")
    parser.add_argument("--work", default=os.path.join(tempfile.gettempdir(), "hpcgcn-methods"),
                        help="graphs and run folders")
    parser.add_argument("--worker", metavar="JOBS", help=argparse.SUPPRESS)
    return parser.parse_args()


def settings_of(args) -> dict:
    """The settings that all variants share: the graph's, then those of the command line."""
    import tomllib
    settings = dict(GRAPHS.get(args.graph, (None, {}))[1])
    settings |= {key: getattr(args, key)
                 for key in ("epochs", "model") if getattr(args, key) is not None}
    for text in args.set:
        key, _, value = text.partition("=")
        try:
            settings[key] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            settings[key] = value
    return settings | {"eval_every": args.eval_every}


def graph_file(args) -> str:
    """The graph file, imported now if it is a data set that has not been yet."""
    if args.graph not in GRAPHS:
        return args.graph
    root, target = os.environ.get("HPCGCN_TEST_DATA"), os.path.join(args.work, f"{args.graph}.h5")
    if os.path.exists(target):
        return target
    if not root:
        sys.exit("set HPCGCN_TEST_DATA to the folder of the data sets, or give a graph file")
    os.makedirs(args.work, exist_ok=True)
    kind, source, *options = GRAPHS[args.graph][0]
    subprocess.run([sys.executable, "-m", "hpcgcn", "import", kind, os.path.join(root, source),
                    *options, "-o", target], check=True)
    store_sparse(target)
    return target


def store_sparse(path: str):
    """Rewrite a graph whose features are nearly all zero with sparse rows: a hundred times less to
    multiply."""
    import numpy as np

    from hpcgcn.graph.data import SparseRows
    from hpcgcn.graph.store import read_graph, write_graph
    graph = read_graph(path)
    if isinstance(graph.features,
                  SparseRows) or np.count_nonzero(graph.features) > 0.05 * graph.features.size:
        return
    rows, columns = np.nonzero(graph.features)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=graph.n_nodes))]).astype(
        np.int64)
    graph.features = SparseRows(indptr, columns.astype(np.int32), graph.features[rows, columns],
                                graph.n_features)
    write_graph(path, graph, command="benchmarks/methods.py")


def make_jobs(args, path: str) -> list[dict]:
    """One training run a variant and seed; a file with several splits uses another one for each
    seed."""
    from hpcgcn.graph.store import header
    n_splits = int(header(path).get("n_splits", 1))
    stem = os.path.splitext(os.path.basename(path))[0]
    output = os.path.join(args.work, f"runs-{stem}")
    shared = settings_of(args) | {"quiet": True, "checkpoint_every": 0, "output": output}
    jobs = []
    # Seeds outside, variants inside: a change in the machine's load touches all variants alike.
    for seed in range(args.seeds):
        for label, own in variants(args.methods).items():
            name = f"{label.replace(', ', '+')}-{seed}"
            jobs.append({"label": label, "seed": seed, "settings": shared | own | {
                "name": name, "seed": seed, "split_index": seed % n_splits}})
    return jobs


def work(jobs_path: str, path: str):
    """What every rank does: all jobs, one after the other.

    A run that fails is noted and the rest go on.
    """
    from hpcgcn.config import make_config
    from hpcgcn.errors import HpcgcnError
    from hpcgcn.mpi.world import on_root, world
    from hpcgcn.train.run import train_model
    comm = world()
    jobs = on_root(comm, lambda: json.load(open(jobs_path)))
    for number, job in enumerate(jobs):
        config = make_config(job["settings"])
        if on_root(comm, is_complete, run_folder(job), config):
            continue
        config = config.replace(overwrite=True)
        # What a run that failed left in flight must not reach the next one: each has messages of
        # its own.
        own = comm.Dup()
        try:
            result = train_model(path, config, own)
            if result.exit_code:
                # asked to stop: all ranks are, and the run will be repeated
                sys.exit(result.exit_code)
            on_root(comm, forget_failure, run_folder(job))
            summary = result.summary
            outcome = (f"test {summary['best']['test']:.4f}, "
                       f"{1000 * summary['seconds_per_epoch']:.1f} ms/epoch")
            own.Free()
        except HpcgcnError as error:
            outcome = f"FAILED: {error}"
            on_root(comm, note_failure, run_folder(job), str(error), config)
        if comm.rank == 0:
            print(f"[{number + 1}/{len(jobs)}] {job['label']}, seed {job['seed']}: {outcome}",
                  flush=True)


def run_folder(job: dict) -> str:
    """Where a job's run is."""
    return os.path.join(job["settings"]["output"], job["settings"]["name"])


def note_failure(folder: str, text: str, config):
    """Leave a run's error message, and its settings, beside its folder: it may have none."""
    from methods_tables import failure_of

    from hpcgcn.config import to_toml
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    with open(failure_of(folder), "w") as file:
        json.dump({"message": text, "settings": to_toml(config)}, file)


def forget_failure(folder: str):
    """Of an earlier call, with other settings."""
    from methods_tables import failure_of
    if os.path.exists(failure_of(folder)):
        os.remove(failure_of(folder))


def is_complete(folder: str, config) -> bool:
    """Has this very configuration been trained to its end (or to its failure)?"""
    from methods_tables import failure_of

    from hpcgcn.config import to_toml
    from hpcgcn.train.folder import RunFolder
    if os.path.exists(failure_of(folder)):
        with open(failure_of(folder)) as file:
            held = json.load(file)["settings"]
        return _without_overwrite(held) == _without_overwrite(to_toml(config))
    try:
        with open(os.path.join(folder, "config.toml")) as file:
            same = _without_overwrite(file.read()) == _without_overwrite(to_toml(config))
    except OSError:
        return False
    summary = RunFolder(folder).read_summary()
    return same and summary is not None and not summary["stopped_early"]


def _without_overwrite(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("overwrite")]


def launch(args, jobs: list[dict], path: str):
    """All jobs in one MPI job of this script."""
    os.makedirs(args.work, exist_ok=True)
    jobs_path = os.path.join(args.work, "jobs.json")
    with open(jobs_path, "w") as file:
        json.dump(jobs, file)
    command = os.environ.get("MPIEXEC", "mpirun --oversubscribe").split()
    environment = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    if os.geteuid() == 0:
        environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    if args.ranks > (os.cpu_count() or 1):
        environment |= idle_sleep(args.work)
    worker = [sys.executable, os.path.abspath(__file__), path, "--worker", jobs_path]
    subprocess.run([*command, "-n", str(args.ranks), *worker], check=True, env=environment)


def idle_sleep(folder: str) -> dict[str, str]:
    """Environment in which waiting ranks sleep; empty without a C compiler."""
    library = os.path.join(folder, "idle_sleep.so")
    built = subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library,
                            os.path.join(HERE, "idle_sleep.c")])
    return {"LD_PRELOAD": library} if built.returncode == 0 else {}


def main():
    args = parse_arguments()
    if args.worker:
        return work(args.worker, args.graph)
    from methods_tables import write_results
    path = graph_file(args)
    jobs = make_jobs(args, path)
    launch(args, jobs, path)
    write_results(args, jobs, settings_of(args), path)


if __name__ == "__main__":
    main()
