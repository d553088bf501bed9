"""Faults in real training jobs: each job must end in time, say who and why, leave sound
checkpoints, and go on when restarted.

    sudo --preserve-env=PATH python benchmarks/faults.py -n 1000 --seed 1      those of the page
    sudo --preserve-env=PATH python benchmarks/faults.py -n 20 --kinds stopped "disk full" --seed 7

Kind, strategy, rank and moment (start-up, an epoch, the writing of a checkpoint) are drawn by seed.
A job trains on 2 to 4 ranks, on lab hosts (jobs/lab/hosts) or in shared memory. After the fault: it
must end by itself within a bound; its message must name the rank and host; no checkpoint may be
broken; no process, no temporary file and no shared memory may be left; the same command, started
again, must go on from the newest checkpoint and end with the parameters, to the bit, of a run that
nothing happened to. Records are kept in --work, one line per fault, and not repeated. Writes
benchmarks/results/faults.md. Needs root and Linux; all it makes is in namespaces of its own.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict

import faults_job
from faults_draw import METHODS, OWN_PARTS, Fault, draw
from faults_job import (
    EPOCHS,
    Job,
    broken_checkpoints,
    choices,
    digest,
    hpcgcn,
    n_checkpoints,
)
from faults_kinds import KINDS, can_limit_memory
from faults_page import BOUND_SECONDS, START_BOUND_SECONDS, page, tell
from methods import idle_sleep

sys.path.insert(0, str(faults_job.ROOT / "jobs" / "lab"))
import contained

RESUME_SECONDS = 120
ATTEMPTS = 10                            # a fault that comes after the job's end is drawn again
INSIDE = "HPCGCN_FAULTS_INSIDE"


class Missed(Exception):
    """The job was over before the fault came."""


class Bench:
    """Part files and uninterrupted runs, made when they are first asked for."""

    def __init__(self, work: pathlib.Path):
        self.work = work
        self._locks, self._guard = {}, threading.Lock()
        self._wanted = {}

    def _once(self, key):
        with self._guard:
            return self._locks.setdefault(key, threading.Lock())

    def source(self, method: str, n_ranks: int) -> pathlib.Path:
        """The file to train on.

        Parts are cut at random: as many rows to exchange as a graph can give.
        """
        graph, parts = self.work / "graph.h5", self.work / f"graph-{n_ranks}.h5"
        with self._once("graph"):
            if not graph.exists():
                quietly(hpcgcn("generate", "sbm", "-o", graph, "--nodes", 600, "--degree", 12,
                               "--features", 64, "--classes", 8))
            if not parts.exists():
                quietly(hpcgcn("partition", graph, "-n", n_ranks, "--method", "random", "-o",
                               parts))
        return parts if method in OWN_PARTS else graph

    def wanted(self, fault: Fault, run_folder: pathlib.Path) -> str:
        """The digest of a run that nothing happens to, and that chooses as this one did (how layers
        are divided, say)."""
        key = (fault.n_ranks, fault.on_hosts, fault.method, choices(run_folder))
        with self._once(key):
            if key not in self._wanted:
                name = (
                    f"straight-{fault.method}-{hashlib.sha256(repr(key).encode()).hexdigest()[:8]}")
                self._wanted[key] = self._straight(fault, run_folder, name)
        return self._wanted[key]

    def _straight(self, fault: Fault, like: pathlib.Path, name: str) -> str:
        folder = self.work / name
        shutil.rmtree(folder, ignore_errors=True)
        if choices(like):  # a run that is resumed before its first checkpoint keeps its choices
            (folder / "disk" / "run").mkdir(parents=True)
            for file in ("run.json", "config.toml", "choices.json"):
                shutil.copy(like / file, folder / "disk" / "run" / file)
        job = Job(folder, self.source(fault.method, fault.n_ranks), fault.n_ranks, fault.on_hosts,
                  fault.method)
        code = job.wait_end(RESUME_SECONDS)
        left = job.left_over()
        if code != 0 or left or choices(job.run_folder) != choices(like):
            raise RuntimeError(f"an undisturbed run failed ({code}, {left}):\n{job.said}")
        return digest(job.run_folder)


def quietly(command: list[str]):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=faults_job.environment())


# -- one fault -------------------------------------------------------------------------------------

def inject(bench: Bench, fault: Fault, folder: pathlib.Path) -> dict:
    """Do it, and look at all that follows. Returns the record."""
    source = bench.source(fault.method, fault.n_ranks)
    folder.mkdir(parents=True)
    kind = KINDS[fault.kind](fault, folder, source)
    kind.prepare()
    try:
        if fault.again:
            stop_early(Job(folder, source, fault.n_ranks, fault.on_hosts, fault.method), fault)
        job = Job(folder, source, fault.n_ranks, fault.on_hosts, fault.method, kind.around())
        strike(job, fault, kind)
        return consequences(bench, job, fault, kind, source)
    finally:
        kind.clean()


def strike(job: Job, fault: Fault, kind):
    """At its moment, or not at all."""
    try:
        if not reach(job, fault):
            raise Missed
        kind.strike(job)
    except (KeyError, OSError, subprocess.CalledProcessError, Missed):       # a rank has just ended
        job.wait_end(0)
        job.left_over()
        raise Missed from None


def consequences(bench: Bench, job: Job, fault: Fault, kind, source: pathlib.Path) -> dict:
    """The end of the job, and its next start."""
    struck = time.monotonic()
    bound = START_BOUND_SECONDS if fault.moment in ("launch", "start") else BOUND_SECONDS
    bound += kind.more_seconds
    code = job.wait_end(bound)
    seconds = time.monotonic() - struck
    left = job.left_over()
    if code == 0 and digest(job.run_folder) == bench.wanted(fault, job.run_folder):
        raise Missed
    problems = [f"no end within {bound} s"] if code is None else []
    if code == 0 and kind.code_counts:
        problems.append("exit code 0 although it is not done")
    problems += [f"not said: {text}" for text in kind.unsaid(job.said)]
    problems += left if kind.cleans_up else [text for text in left if text.startswith("process")]
    said = job.said
    broken, kept = broken_checkpoints(job.run_folder), n_checkpoints(job.run_folder)
    kind.undo()
    again = Job(job.folder, source, fault.n_ranks, fault.on_hosts, fault.method)
    unlike = restart_problems(bench, again, fault, kept)
    found = {**asdict(fault), "code": code, "seconds": round(seconds, 2), "checkpoints": kept,
             "ended": problems == [],
             "broken": len(broken), "resumed": unlike == [], "problems": problems + broken + unlike}
    if found["problems"]:
        found |= {"said": said[-4000:], "said_again": again.said[-4000:]}
    return found


def stop_early(job: Job, fault: Fault):
    """A first part of the run, which ends as a job at its time limit does."""
    job.wait_ranks(fault.n_ranks)
    job.wait_until(lambda: job.epochs_done() >= fault.after)
    for process in job.ranks().values():
        os.kill(process, contained.signal.SIGUSR1)
    job.wait_end(RESUME_SECONDS)
    job.left_over()


def reach(job: Job, fault: Fault) -> bool:
    """Wait for the fault's moment; False if the job was over before."""
    if fault.moment == "launch":
        time.sleep(fault.delay)
        return job.process.poll() is None
    if not job.wait_ranks(fault.n_ranks):
        return fault.kind == "part file unreadable"      # it strikes by itself
    if fault.moment != "start" and not job.wait_until(lambda: job.epochs_done() >= fault.after):
        return False
    if fault.moment == "checkpoint" and not job.wait_until(job.is_writing):
        return False
    time.sleep(fault.delay if fault.kind != "part file unreadable" else 0)
    return job.process.poll() is None or fault.kind == "part file unreadable"


def restart_problems(bench: Bench, job: Job, fault: Fault, kept: int) -> list[str]:
    """What is wrong with the next start of the same command."""
    code = job.wait_end(RESUME_SECONDS)
    left = job.left_over()
    if code != 0:
        return [f"the next start ended with {code}", *left]
    went_on = ("nothing to do" in job.said
               or "resuming from" in job.said and "start anew" not in job.said)
    problems = [] if went_on or not kept else ["it did not go on from a checkpoint"]
    if digest(job.run_folder) != bench.wanted(fault, job.run_folder):
        problems.append("other parameters than those of an uninterrupted run")
    if job.epochs_done() != EPOCHS:
        problems.append(f"{job.epochs_done()} rows of {EPOCHS} in metrics.csv")
    stray = [path.name for path in job.run_folder.rglob("*")
             if path.name.startswith((".writing-", ".hpcgcn-", "lock"))]
    stray += [path.name for path in job.run_folder.parent.iterdir()
              if path.name.startswith((".hpcgcn-", ".heartbeat-"))]
    return problems + left + ([f"left in the run's folder: {', '.join(stray)}"] if stray else [])


def settle(bench: Bench, args: argparse.Namespace, number: int) -> dict:
    """Draw and inject until it strikes."""
    for attempt in range(ATTEMPTS):
        fault = draw(args, number, attempt)
        folder = bench.work / f"fault-{args.seed}-{number}-{attempt}"
        shutil.rmtree(folder, ignore_errors=True)
        try:
            return {"seed": args.seed, **inject(bench, fault, folder)}
        except Missed:
            continue
        except Exception:  # noqa: BLE001 - one that cannot be told must not end the others
            return failure(args.seed, fault, traceback.format_exc())
        finally:
            subprocess.run(["umount", "--quiet", folder / "disk"], stderr=subprocess.DEVNULL)
    return failure(args.seed, fault, f"came too late {ATTEMPTS} times")


def failure(seed: int, fault: Fault, why: str) -> dict:
    return {"seed": seed, **asdict(fault), "ended": False, "broken": 0, "resumed": False,
            "seconds": 0.0, "problems": [why]}


# -- all of them -----------------------------------------------------------------------------------

def parse_arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=200, help="faults (200)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="+", choices=tuple(KINDS), default=list(KINDS))
    parser.add_argument("--methods", nargs="+", default=list(METHODS),
                        help=f"of the jobs ({' '.join(METHODS)})")
    parser.add_argument("--ranks", nargs="+", type=int, default=[2, 3, 4],
                        help="of the jobs (2 3 4)")
    parser.add_argument("--jobs", type=int, default=6,
                        help="faults at a time (6): they mostly wait")
    parser.add_argument("--work", type=pathlib.Path,
                        default=pathlib.Path(tempfile.gettempdir()) / "hpcgcn-faults",
                        help="folders of the jobs, and faults.jsonl")
    parser.add_argument("--repeat", action="store_true",
                        help="those that went wrong in an earlier call; the page tells of both")
    parser.add_argument("--no-page", action="store_true",
                        help="do not write benchmarks/results/faults.md")
    return parser.parse_args(argv)


def inject_all(args: argparse.Namespace) -> list[dict]:
    """All records, those of an earlier call among them."""
    args.work.mkdir(parents=True, exist_ok=True)
    os.environ.update(idle_sleep(str(args.work.resolve())))      # jobs share few cores
    listing, bench = args.work / "faults.jsonl", Bench(args.work.resolve())
    kept = [json.loads(line)
            for line in listing.read_text().splitlines()] if listing.exists() else []
    found = {r["number"]: r for r in kept if r["seed"] == args.seed and r["number"] < args.n
             and r["kind"] in args.kinds}
    earlier = {number: r.get("earlier", []) + r["problems"]
               for number, r in found.items() if r["problems"] and args.repeat}
    missing = [number for number in range(args.n) if number not in found or number in earlier]
    with ThreadPoolExecutor(args.jobs) as pool, open(listing, "a") as file:
        for future in as_completed([pool.submit(settle, bench, args, number)
                                    for number in missing]):
            record = future.result()
            record["earlier"] = earlier.get(record["number"], [])
            found[record["number"]] = record
            file.write(json.dumps(record) + "\n")
            file.flush()
            tell(record, len(found), args.n)
    return [found[number] for number in sorted(found)]


def main(argv: list[str]) -> int:
    args = parse_arguments(argv)
    if os.environ.get(INSIDE):
        if "killed for its memory" in args.kinds and not can_limit_memory():
            print("no control groups here: 'killed for its memory' is left out", flush=True)
            args.kinds.remove("killed for its memory")
        records = inject_all(args)
        if not args.no_page:
            page(args, records)
        wrong = [r["number"] for r in records if r["problems"]]
        print(f"{len(records)} faults, {len(records) - len(wrong)} as they should be"
              + (f"; not: {wrong}" if wrong else ""))
        return 1 if wrong else 0
    if os.geteuid() != 0:
        print("benchmarks/faults.py: needs root, for the lab's hosts, mounts and control groups",
              file=sys.stderr)
        return 2
    os.environ[INSIDE] = "1"
    return contained.start(lambda signals: inside(signals, argv), contained.NEW_IPC)


def inside(signals, argv: list[str]) -> int:
    """In a process namespace of its own; ranks that are killed leave their shared memory behind,
    here in a place that goes."""
    contained.run("mount", "-t", "tmpfs", "faults", "/dev/shm")
    return signals.run([sys.executable, __file__, *argv])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
