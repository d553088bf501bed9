"""What benchmarks/faults.py tells: a line per fault while it runs, a page at the end."""

from __future__ import annotations

import argparse

from common import markdown_table, write_results
from faults_draw import DELAYS
from faults_job import STALL_SECONDS
from faults_kinds import CRAWL, KINDS, RETRIES

BOUND_SECONDS = STALL_SECONDS + 30  # from the fault to the end of the job; the machine may be busy
# while ranks read and set up, they have more patience with each other
START_BOUND_SECONDS = 10 * STALL_SECONDS + 30


def tell(record: dict, done: int, total: int):
    network = "on hosts" if record["on_hosts"] else "in memory"
    where = f"rank {record['rank']} of {record['n_ranks']} {network}, {record['method']}"
    what = f"{record['kind']} {record['variant']}".strip()
    when = f"{record['moment']} {'again ' if record['again'] else ''}({record['after']} epochs)"
    print(f"{done}/{total} #{record['number']} {what}, {when}, {where}: end after "
          f"{record['seconds']:.1f} s, "
          + ("; ".join(record["problems"]) if record["problems"] else "resumed"), flush=True)


def page(args: argparse.Namespace, records: list[dict]):
    """benchmarks/results/faults.md."""
    rows = []
    for name in [*args.kinds, "all"]:
        these = [r for r in records if name in (r["kind"], "all")]
        rows.append([name, len(these), sum(r["ended"] for r in these),
                     sum(r["broken"] for r in these), sum(r["resumed"] for r in these),
                     f"{max((r['seconds'] for r in these), default=0):.1f}",
                     sum(bool(r.get("earlier")) for r in these)])
    table = markdown_table(["kind", "faults", "clean ends", "broken checkpoints",
                            "resumed bit for bit", "longest, s", "repeated"], rows)
    by_moment = {m: sum(r["moment"] == m for r in records) for m in DELAYS}
    methods = ", ".join(f"{name} {sum(r['method'] == name for r in records)}"
                        for name in args.methods)
    text = (f"Kind, strategy, rank and moment are drawn by seed (faults per method: {methods}): "
            f"{by_moment['launch'] + by_moment['start']} faults strike during start-up, "
            f"{by_moment['epoch']} during an epoch, {by_moment['checkpoint']} while a checkpoint "
            f"is written; {sum(r['on_hosts'] for r in records)} in jobs over TCP between lab "
            f"hosts, the others in shared memory. A clean end: within {BOUND_SECONDS} s, or "
            f"{START_BOUND_SECONDS} s during start-up (`--stall-timeout {STALL_SECONDS}`), with "
            "a message that names rank and host; no process, temporary file or shared memory is "
            "left (a launcher that is killed leaves its own session folder). Longest: from the "
            "fault to the end.")
    notes = (f"Hosts whose link is cut have tcp_retries2 at {RETRIES}: with Linux's default, "
             "mpirun takes about 7 minutes to give up a host after the ranks have ended the job; "
             "and it returns 0 then (Open MPI 5.0.11). If a rank is stopped so early that its "
             "watcher does not run yet, a rank that waits for it is named and ended. A link at a "
             f"crawl carries {CRAWL}: what the launcher tells its hosts at the end passes it, too, "
             "and small messages get through in less than the stall limit for a while: the end "
             f"may take {KINDS['link at a crawl'].more_seconds} s more.")
    went_wrong = [f"- {r['kind']}: {problem.strip().splitlines()[-1]}" for r in records
                  for problem in r.get("earlier", [])]
    if went_wrong:
        notes += "\n\nWhat went wrong before it was repeated:\n\n" + "\n".join(went_wrong)
    command = f"python benchmarks/faults.py -n {args.n} --seed {args.seed}"
    columns = ("kind", "faults", "clean_ends", "broken", "resumed", "longest_seconds", "repeated")
    write_results("faults", "Faults in training jobs", command, [table, text, notes],
                  {"kinds": [dict(zip(columns, row)) for row in rows]})
