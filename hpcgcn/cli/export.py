"""hpcgcn export: a graph file in, a format of others out."""

from __future__ import annotations

import argparse
import sys

from hpcgcn.cli.output import add_overwrite, foreign

_FORMATS = ("csv", "mtx", "npz", "npz-heterophilous", "npz-gnn-benchmark", "ogb", "graphsaint",
            "dgl-reddit", "planetoid", "pyg", "dgl")


def add_arguments(parser: argparse.ArgumentParser):
    """Declare the arguments of this command."""
    parser.add_argument("graph", help="a graph or partition file")
    parser.add_argument("--format", required=True, choices=_FORMATS, metavar="FORMAT",
                        help=", ".join(_FORMATS))
    parser.add_argument("-o", "--output", required=True, metavar="PATH",
                        help="file or new folder to write")
    add_overwrite(parser, "a file (folders are never replaced)")


def run(args: argparse.Namespace) -> int:
    """Run this command; returns the exit code."""
    from hpcgcn.formats.table import WRITERS, check_place, left_out, write_as
    from hpcgcn.graph.store import read_graph

    replaces = foreign(args.overwrite)
    check_place(args.format, args.output, replaces, [args.graph])
    graph = read_graph(args.graph)
    write_as(args.format, args.output, graph, replaces, [args.graph])
    print(f"{args.output}: {WRITERS[args.format][2]} of {args.format}, {graph.n_nodes:,} nodes, "
          f"{graph.n_edges:,} entries")
    lost = left_out(args.format, graph)
    if lost:
        print(f"  note: {args.format} holds no {', '.join(lost)}: not written", file=sys.stderr)
    return 0
