"""The faults of benchmarks/faults.py: what can happen to which job when, drawn by seed."""

from __future__ import annotations

import argparse
import random
from dataclasses import dataclass

from faults_job import EPOCHS
from faults_kinds import KINDS

METHODS = ("overlap", "pipegcn-gf", "sylvie-a", "varco", "mixgcn", "mixgcn-moa", "gnnpipe",
           "gnnpipe-hybrid")
OWN_RANKS = {"gnnpipe-hybrid": [4]}      # two stages of two
# on a partition file; the others read the graph
OWN_PARTS = ("overlap", "pipegcn-gf", "sylvie-a", "varco", "mixgcn")
# seconds after the moment, at most
DELAYS = {"launch": 1.0, "start": 1.5, "epoch": 0.05, "checkpoint": 0.004}


@dataclass(frozen=True)
class Fault:
    """One fault, all of it drawn by seed."""

    number: int
    kind: str
    variant: str
    n_ranks: int
    rank: int
    on_hosts: bool
    method: str
    moment: str                          # launch (MPI has not started), start, epoch or checkpoint
    after: int                           # epochs
    delay: float                         # seconds after that
    again: bool                          # does it meet a restart, rather than the first start?
    left_bytes: int                      # on a full disk
    share: float                         # of a file that is cut short


def draw(args: argparse.Namespace, number: int, attempt: int) -> Fault:
    """Fault `number` of a seed.

    All kinds come equally often, in an order of their own in every round.
    """
    kinds = args.kinds
    order = random.Random(f"{args.seed} {number // len(kinds)}").sample(kinds, len(kinds))
    kind, rng = order[number % len(kinds)], random.Random(f"{args.seed} {number} {attempt}")
    method = rng.choice(args.methods)
    n_ranks = rng.choice(OWN_RANKS.get(method, args.ranks))
    moment = rng.choice(KINDS[kind].moments)
    again = moment == "start" and rng.random() < 0.5
    return Fault(number, kind, rng.choice(KINDS[kind].variants), n_ranks, rng.randrange(n_ranks),
                 KINDS[kind].on_hosts(rng), method, moment,
                 rng.randrange(1, int(EPOCHS * KINDS[kind].latest)),
                 rng.uniform(0, DELAYS[moment]), again,
                 rng.choice((0, 0, 4096, 20_000, 60_000)), rng.uniform(0.001, 0.95))
