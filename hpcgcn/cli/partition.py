"""hpcgcn partition: divide a graph among ranks."""

from __future__ import annotations

import argparse
import contextlib
import json
import time

from hpcgcn.cli import numbers, text
from hpcgcn.cli.output import add_overwrite, show

_SAID_SECONDS = 5.0        # a partitioner that takes longer is announced with what it will take


def add_arguments(parser: argparse.ArgumentParser):
    """Declare the arguments of this command."""
    parser.add_argument("graph", help="graph file (or a partition file, to partition it again)")
    parser.add_argument("-n", "--parts", type=int, required=True, metavar="P",
                        help="number of parts: one per rank")
    parser.add_argument("-o", "--output", metavar="FILE",
                        help="partition file to write (<graph>-<P>.h5 beside the graph, with the "
                             "method and the objective if they are given)")
    parser.add_argument("--method", default="auto",
                        choices=("auto", "metis", "kaminpar", "streaming", "labels", "random",
                                 "block"),
                        help="metis, kaminpar: in memory; streaming: one block of the graph at a "
                             "time; labels: label propagation on all ranks of the job (mpirun -n R "
                             "hpcgcn partition); block: equal runs of node ids; auto: the best "
                             "that fits the memory (%(default)s)")
    parser.add_argument("--objective", choices=("auto", "volume", "cut"), default="auto",
                        help="what metis minimises: rows to exchange (communication volume), or "
                             "edges cut, which takes a tenth of the time; auto: of a small graph "
                             "both, and the one with fewer halo rows is kept, else cut "
                             "(%(default)s)")
    parser.add_argument("--balance", choices=("nodes", "edges", "train"), default="nodes",
                        help="what is balanced over the parts; train: training nodes and nodes "
                             "(%(default)s)")
    parser.add_argument("--reorder", choices=("auto", "none", "degree", "rcm", "cluster"),
                        default="auto",
                        help="order of the nodes within a part, for locality in the cache; auto: "
                             "the one that loads the fewest rows, counted on the first part "
                             "(%(default)s)")
    parser.add_argument("--seed", type=numbers.seed, default=0, metavar="S",
                        help="for all methods but block (%(default)s)")
    parser.add_argument("--memory", type=numbers.size, metavar="SIZE",
                        help="what may be used, such as 12GiB; of every host, if ranks partition "
                             "(what is free)")
    parser.add_argument("--force", action="store_true",
                        help="try a method whose forecast is above that")
    parser.add_argument("--forecast", action="store_true",
                        help="only say what each method would take")
    parser.add_argument("--ranks-per-host", type=int, default=0, metavar="R",
                        help="count rows between hosts, too, if each has R ranks: once per rank "
                             "that reads them, and once per host (not counted)")
    parser.add_argument("--json", action="store_true", help="print the costs as JSON")
    add_overwrite(parser, "a partition of another graph")


def run(args: argparse.Namespace) -> int:
    """Run this command; returns the exit code."""
    from hpcgcn.mpi.launcher import launched_size
    if (launched_size() or ("", 1))[1] > 1:
        from hpcgcn.mpi.world import run_ranks
        return run_ranks(_partition_on_ranks, args)
    from hpcgcn.graph.partitioners.base import Alone
    from hpcgcn.graph.partitioners.memory import free_memory
    output, replaces = _target(args)
    _divide(args, output, replaces, Alone(), args.memory or free_memory())
    return 0


def _partition_on_ranks(comm, args: argparse.Namespace) -> int:
    """The same on all ranks of a job."""
    from hpcgcn.graph.partitioners.memory import free_memory
    from hpcgcn.mpi.ranks import Ranks
    ranks, target = Ranks(comm), ("", None)
    with ranks.agreed():
        if comm.rank == 0:
            target = _target(args)
    memory = args.memory or min(comm.allgather(free_memory()))
    _divide(args, *target, ranks, memory)
    return 0


def _target(args: argparse.Namespace):
    """The file to write and what it may replace; refused before any work."""
    from hpcgcn.errors import ConfigError
    from hpcgcn.files.replace import REMEDY, check_target
    from hpcgcn.graph.divide import default_partition_path
    from hpcgcn.graph.header import source_uuid
    from hpcgcn.graph.replaceable import own_h5

    if args.ranks_per_host < 0:
        raise ConfigError(f"--ranks-per-host {args.ranks_per_host}: a host has at least one rank; "
                          "leave it out, and rows between hosts are not counted")
    output = args.output or str(default_partition_path(args.graph, args.parts, args.method,
                                                       args.objective))
    facts = {} if args.overwrite else {"source_uuid": source_uuid(args.graph)}
    remedy = "give another name with -o" if args.overwrite else REMEDY
    replaces = own_h5("partition", remedy, **facts)
    check_target(output, replaces, [args.graph])
    return output, replaces


def _divide(args: argparse.Namespace, output: str, replaces, ranks, memory: float):
    """Partition and write; rank 0 writes and tells. Collective."""
    from hpcgcn.graph.divide import open_graph, write_divided
    from hpcgcn.graph.partition import task_of
    from hpcgcn.graph.partitioners.choose import choose_parts

    began = time.perf_counter()
    with contextlib.ExitStack() as stack:
        with ranks.agreed():         # rank 0 looks at all values
            graph = stack.enter_context(open_graph(args.graph, checked=ranks.rank == 0))
        with ranks.agreed():
            task = task_of(graph, args.parts, args.method, args.objective, args.balance, args.seed,
                           memory=memory, ranks=ranks)
            _announce(task, args)
        if args.forecast:
            return
        with ranks.agreed():
            chosen = choose_parts(task, args.method, args.force)
        seconds = time.perf_counter() - began
        with ranks.agreed():
            if ranks.rank == 0:
                costs = write_divided(graph, chosen, output, args.parts, args.balance,
                                      args.reorder, args.seed, memory,
                                      command=text.command_line(),
                                      ranks_per_host=args.ranks_per_host, replaces=replaces,
                                      inputs=[args.graph], seconds=seconds)
                _tell(args, output, time.perf_counter() - began, costs)


def _announce(task, args: argparse.Namespace):
    """What partitioners would take: all of them if asked for, else in a line if that is long."""
    import logging

    from hpcgcn.graph.partitioners.choose import forecast_lines
    rows = forecast_lines(task, args.method)
    if task.ranks.rank:
        return
    if args.forecast:
        show(text.table(["method", "memory", "seconds", ""], [row[:4] for row in rows]))
    elif any(row[4] > _SAID_SECONDS for row in rows if row[3] == "chosen"):
        said = "; ".join(f"{name} {size}, {seconds} s" + (f" ({note})" if note else "")
                         for name, size, seconds, note, _ in rows)
        logging.getLogger(__name__).info("forecast: %s", said)


def _tell(args: argparse.Namespace, output: str, seconds: float, costs: dict):
    if not args.json:
        show(_table(output, seconds, costs))
        return
    chosen = {name: costs.pop(name) for name in ("method", "objective", "why", "reorder")}
    show(json.dumps({"file": output, **chosen, "balance_by": args.balance, "seed": args.seed,
                     "seconds": seconds, **costs}, indent=2))


def _hops(hops: list[dict]) -> list[tuple[str, str]]:
    """Lines on the rows that training exchanges."""
    names = ("last hop", "hop before", "second before", "third before")
    return [(f"rows, {name}", f"{hop['all']:,}; needed by the loss {hop['needed']:,}; with "
                              f"partial sums {hop['auto']:,} (at least {hop['cover']:,})"
                              + _between_hosts(hop)) for name, hop in zip(names, hops)]


def _between_hosts(hop: dict) -> str:
    return ("" if "once_per_host" not in hop else f"; needed rows between hosts "
            f"{hop['between_hosts']:,}, once per host {hop['once_per_host']:,}, with partial sums "
            f"{hop['cover_per_host']:,}")


def _table(output: str, seconds: float, costs: dict) -> str:
    parts, balance = costs["parts"], costs["balance"]
    columns = [name for name in ("nodes", "edges", "train", "halo") if name in parts]
    rows = [[number, *(f"{parts[name][number]:,}" for name in columns)]
            for number in range(costs["n_parts"])]
    rows.append(["max/mean", *(f"{balance[name]:.3f}" for name in columns)])
    method = costs["method"] + (f", objective {costs['objective']}" if costs["objective"] != "none"
                                else "")
    return text.table(["part", *columns], rows) + "\n\n" + text.pairs([
        ("method", f"{method}: {costs['why']}"),
        ("edge cut", f"{costs['edge_cut']:,} ({costs['edge_cut_share']:.1%} of the edges)"),
        ("halo rows M", f"{costs['halo_rows']:,}"),
        ("M/N", f"{costs['halo_ratio']:.4f}"),
        *_hops(costs.get("hops_from_loss", [])),
        ("order in a part", costs["reorder"]),
        *([] if costs["covers"] else [("partial sums", "not computed: the graph is large; "
                                                       "training does when it starts")]),
        ("seconds", f"{seconds:.1f}; " + ", ".join(f"{name} {spent:.1f}" for name, spent
                                                   in costs["seconds_by"].items())),
        ("written to", output)])
