"""hpcgcn export: a graph file in, a format of others out."""

from __future__ import annotations

import argparse
import sys

HELP = "write a graph in a format that other programs read"

_FORMATS = ("csv", "mtx", "npz", "npz-heterophilous", "npz-gnn-benchmark", "ogb", "graphsaint", "dgl-reddit", "planetoid",
            "pyg", "dgl")


def add_arguments(parser: argparse.ArgumentParser):
    parser.add_argument("graph", help="a graph or partition file")
    parser.add_argument("--format", required=True, choices=_FORMATS, metavar="FORMAT", help=", ".join(_FORMATS))
    parser.add_argument("-o", "--output", required=True, metavar="PATH", help="file or new folder to write")


def run(args: argparse.Namespace) -> int:
    from hpcgcn.formats.table import WRITERS, left_out, write_as
    from hpcgcn.graph.store import read_graph

    graph = read_graph(args.graph)
    write_as(args.format, args.output, graph)
    print(f"{args.output}: {WRITERS[args.format][2]} of {args.format}, {graph.n_nodes:,} nodes, {graph.n_edges:,} entries")
    lost = left_out(args.format, graph)
    if lost:
        print(f"  note: {args.format} holds no {', '.join(lost)}: not written", file=sys.stderr)
    return 0
