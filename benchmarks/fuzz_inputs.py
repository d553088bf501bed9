"""Damaged inputs of every kind, through what users do: each is used, or refused with one message.

    python benchmarks/fuzz_inputs.py -n 100000 --write     all kinds; writes the table of results
    python benchmarks/fuzz_inputs.py -n 100000 --write --log run.jsonl      started again after it
                                                           was ended, it goes on where it was
    python benchmarks/fuzz_inputs.py -n 2000 --kind graph --kind npz
    python benchmarks/fuzz_inputs.py --kind graph --case 17 --keep damaged      one case, its
                                                           traceback, and its files in `damaged`
    python benchmarks/fuzz_inputs.py --repeat              the faults of the table again, with the
                                                           code of today

Sound files are made first. A case is a copy of one, damaged as the seed and its number say: bits
and blocks of bytes, and what only one who knows the format can do, such as an HDF5 dataset of
another type whose checksums fit. It is then used by the commands of hpcgcn in a process of its own
that may take 10 s and 1 GiB and change nothing outside of a temporary folder. The exit code is 1 if
any case ends with an exception that is not ours, the death of its process, too much time or memory,
a message that is too long or steers the terminal, or if an input was called sound and then could
not be used.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import itertools
import os
import random
import signal
import sys
import tempfile
import time
import uuid

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"


EVERY = 1000                         # cases between two lines of a log


def main() -> int:
    args = _arguments()
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    from fuzz import kinds, log, pool, repeat, tables

    chosen = args.kind or list(kinds.KINDS)
    if args.repeat:
        chosen = sorted({fault["kind"] for fault in repeat.faults_of()[1]})
    unknown = [name for name in chosen if name not in kinds.KINDS]
    if unknown:
        sys.exit(f"fuzz_inputs: no kind {unknown[0]!r}; expected some of {', '.join(kinds.KINDS)}")
    pool.load_modules()
    book = log.Log(args.log, args.seed)
    # Always a new folder of its own: damaged files may name others, and none of those may be
    # anybody's.
    with tempfile.TemporaryDirectory(prefix="hpcgcn-fuzz-", ignore_cleanup_errors=True) as folder:
        sound = os.path.join(folder, "sound")
        pool.in_child(folder, make_sound_files, sound, chosen)
        if args.case is not None:
            return _one_case(args, sound, folder, chosen)
        if args.repeat:
            return 1 if repeat.repeat(sound, folder, args.workers) else 0
        cases = kinds.cases(chosen, args.n)
        table = tables.Table(chosen)
        for outcome in book.held:
            table.add(outcome)
        found = pool.run_cases(book.left(cases), sound, folder, args.seed, args.workers)
        whole = _filled(table, book.kept(found), len(cases))
    print(table.text(book.seconds, args.seed, args.messages))
    if not whole:
        print(f"stopped after {table.n_done:,} of {len(cases):,} cases")
    if args.write:
        print(
            table.write(book.seconds, args.seed, book.commits, len(cases),
                        " ".join(["python", "benchmarks/fuzz_inputs.py", *sys.argv[1:]]))
        )
    return 1 if table.n_faults or not whole else 0


def _filled(table, outcomes, n_cases: int) -> bool:
    """Count the outcomes; False if a signal ended it before all were there."""

    def stop(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        for outcome in outcomes:
            table.add(outcome)
            _tell(table, outcome, n_cases)
        return True
    except KeyboardInterrupt:
        outcomes.close()  # ends the workers
        return False
    finally:
        signal.signal(signal.SIGTERM, before)


def _tell(table, outcome, n_cases: int):
    """How far it is: in place on a terminal, now and then in a log, where each fault is told,
    too."""
    words = f"{table.n_done:,} of {n_cases:,} cases, {table.n_faults} faults"
    if sys.stderr.isatty():
        print(f"\r{words}", end="", file=sys.stderr)
        return
    if table.is_fault(outcome):
        print(f"{outcome.kind} {outcome.number} {outcome.outcome}: {outcome.where} | "
              f"{outcome.changes[:120]} | {outcome.detail[:200]!r}", file=sys.stderr)
    if table.n_done % EVERY == 0:
        print(words, file=sys.stderr, flush=True)


def make_sound_files(folder: str, chosen: list[str]):
    """Sound inputs of some kinds, a folder for each; kinds that share them have them once."""
    from fuzz.kinds import KINDS

    _make_repeatable()
    with (
        open(os.devnull, "w") as nothing,
        contextlib.redirect_stdout(nothing),
        contextlib.redirect_stderr(nothing),
    ):
        for name in chosen:
            place = os.path.join(folder, KINDS[name].shared or name)
            if not os.path.exists(place):
                os.makedirs(place)
                KINDS[name].make(place)


def _make_repeatable():
    """Have clocks and identities of this process be the same each time, so that a case is the same
    each time."""
    from hpcgcn.graph import header

    class Then(datetime.datetime):
        @classmethod
        def now(cls, zone=None):
            return cls(2024, 1, 1, tzinfo=zone)

    header.datetime = Then
    ticks, numbers = itertools.count(), random.Random(0)
    time.time = lambda: 1.7e9
    time.perf_counter = lambda: next(ticks) / 1000
    uuid.uuid4 = lambda: uuid.UUID(int=numbers.getrandbits(128), version=4)


def _one_case(args, sound: str, folder: str, chosen: list[str]) -> int:
    from fuzz import cases, pool

    if args.keep:
        print(cases.make_case(sound, os.path.abspath(args.keep), args.seed, chosen[0], args.case))
    [outcome] = pool.run_cases([(chosen[0], args.case)], sound, folder, args.seed, 1)
    print(f"{outcome.changes}\n{outcome.outcome} "
          f"{outcome.where}\n{outcome.detail}\n{outcome.trace}")
    print(f"{outcome.seconds:.2f} s, {outcome.peak >> 20} MiB")
    return 0 if outcome.outcome in ("accepted", "refused") else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-n", type=int, default=1000, help="cases, over all kinds in turn (1000)")
    parser.add_argument("--seed", type=int, default=0, help="of the damage (0)")
    parser.add_argument("--kind", action="append",
                        help="only this kind; may be given several times")
    parser.add_argument("--case", type=int, help="only this case of one kind, with its traceback")
    parser.add_argument("--keep", metavar="FOLDER",
                        help="with --case: write the damaged input here, a new folder")
    parser.add_argument("--repeat", action="store_true",
                        help="try the faults of results/fuzz-inputs.json again and write what "
                        "came of it beneath its table")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)),
                        help="processes (one for each core)")
    parser.add_argument("--log", metavar="FILE",
                        help="keep every outcome there, and do not try again what is in it")
    parser.add_argument("--messages", action="store_true",
                        help="list the messages of refusals, too")
    parser.add_argument("--write", action="store_true",
                        help="write results/fuzz-inputs.md and .json, also if SIGTERM ends it")
    args = parser.parse_args()
    if args.case is not None and len(args.kind or ()) != 1:
        parser.error("--case goes with one --kind")
    if args.keep and os.path.exists(args.keep):
        parser.error(f"--keep {args.keep}: it is there already; expected a new folder")
    return args


if __name__ == "__main__":
    sys.exit(main())
