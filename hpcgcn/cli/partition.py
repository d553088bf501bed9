"""hpcgcn partition: divide a graph among ranks."""

from __future__ import annotations

import argparse
import json
import time

from hpcgcn.cli import numbers, text
from hpcgcn.cli.output import add_overwrite


def add_arguments(parser: argparse.ArgumentParser):
    """Declare the arguments of this command."""
    parser.add_argument("graph", help="graph file (or a partition file, to partition it again)")
    parser.add_argument("-n", "--parts", type=int, required=True, metavar="P",
                        help="number of parts: one per rank")
    parser.add_argument("-o", "--output", metavar="FILE",
                        help="partition file to write (<graph>-<P>.h5 beside the graph, with the "
                             "method if not the default)")
    parser.add_argument("--method", choices=("metis", "random", "block"), default="metis",
                        help="block: equal runs of node ids (%(default)s)")
    parser.add_argument("--objective", choices=("volume", "cut"), default="volume",
                        help="what METIS minimises: rows to exchange (communication volume), or "
                             "edges cut, which is faster (%(default)s)")
    parser.add_argument("--balance", choices=("nodes", "edges", "train"), default="nodes",
                        help="what is balanced over the parts; train: training nodes and nodes "
                             "(%(default)s)")
    parser.add_argument("--reorder", choices=("none", "degree", "rcm", "cluster"), default="none",
                        help="order of the nodes within a part, for locality in the cache "
                             "(%(default)s)")
    parser.add_argument("--seed", type=numbers.seed, default=0, metavar="S",
                        help="for metis and random (%(default)s)")
    parser.add_argument("--ranks-per-host", type=int, default=0, metavar="R",
                        help="count rows between hosts, too, if each has R ranks: once per rank "
                             "that reads them, and once per host (not counted)")
    parser.add_argument("--json", action="store_true", help="print the costs as JSON")
    add_overwrite(parser, "a partition of another graph")


def run(args: argparse.Namespace) -> int:
    """Run this command; returns the exit code."""
    from hpcgcn.errors import ConfigError
    from hpcgcn.files.replace import REMEDY, check_target
    from hpcgcn.graph.divide import default_partition_path, divide
    from hpcgcn.graph.header import source_uuid
    from hpcgcn.graph.replaceable import own_h5
    from hpcgcn.graph.store import read_graph

    if args.ranks_per_host < 0:
        raise ConfigError(f"--ranks-per-host {args.ranks_per_host}: a host has at least one rank; "
                          "leave it out, and rows between hosts are not counted")
    output = args.output or str(default_partition_path(args.graph, args.parts, args.method,
                                                       args.objective))
    facts = {} if args.overwrite else {"source_uuid": source_uuid(args.graph)}
    remedy = "give another name with -o" if args.overwrite else REMEDY
    replaces = own_h5("partition", remedy, **facts)
    check_target(output, replaces, [args.graph])
    began = time.perf_counter()
    costs = divide(read_graph(args.graph), output, args.parts, method=args.method,
                   objective=args.objective, balance=args.balance, reorder=args.reorder,
                   seed=args.seed, command=text.command_line(),
                   ranks_per_host=args.ranks_per_host, replaces=replaces, inputs=[args.graph])
    seconds = time.perf_counter() - began
    if args.json:
        chosen = {"method": args.method, "objective": args.objective, "balance_by": args.balance,
                  "reorder": args.reorder, "seed": args.seed}
        print(json.dumps({"file": output, **chosen, "seconds": seconds, **costs}, indent=2))
    else:
        _print_table(output, seconds, costs)
    return 0


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


def _print_table(output: str, seconds: float, costs: dict):
    parts, balance = costs["parts"], costs["balance"]
    columns = [name for name in ("nodes", "edges", "train", "halo") if name in parts]
    rows = [[number, *(f"{parts[name][number]:,}" for name in columns)]
            for number in range(costs["n_parts"])]
    rows.append(["max/mean", *(f"{balance[name]:.3f}" for name in columns)])
    print(text.table(["part", *columns], rows) + "\n")
    print(text.pairs([
        ("edge cut", f"{costs['edge_cut']:,} ({costs['edge_cut_share']:.1%} of the edges)"),
        ("halo rows M", f"{costs['halo_rows']:,}"),
        ("M/N", f"{costs['halo_ratio']:.4f}"),
        *_hops(costs.get("hops_from_loss", [])),
        ("seconds", f"{seconds:.1f}; partitioning {costs['seconds_by']['partition']:.1f}, covers "
                    f"{costs['seconds_by']['cover']:.1f}"),
        ("written to", output)]))
