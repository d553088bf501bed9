"""hpcgcn generate: make a graph."""

from __future__ import annotations

import argparse
import contextlib
import os
import time

from hpcgcn.cli import numbers, text
from hpcgcn.cli.output import add_overwrite, same_graph

# Edges and features that are kept in memory, in numbers; of larger graphs they are in files first.
IN_MEMORY = 100_000_000

_KINDS = {
    "sbm": "degree-corrected stochastic block model: power-law degrees, blocks per class, "
           "informative features",
    "rmat": "R-MAT: heavy hubs and isolated nodes; a load test more than a learning task",
    "grid": "square grid with 4 or 8 neighbours per node, classes in bands",
}


def add_arguments(parser: argparse.ArgumentParser):
    """Declare the arguments of this command."""
    kinds = parser.add_subparsers(dest="graph_kind", required=True,
                                  metavar="{" + ",".join(_KINDS) + "}")
    for kind, help_text in _KINDS.items():
        _add_kind(kinds.add_parser(kind, help=help_text, description=help_text), kind)


def run(args: argparse.Namespace) -> int:
    """Run this command; returns the exit code."""
    from hpcgcn.files.replace import check_target
    began = time.perf_counter()
    settings = _settings(args)
    noted = {"kind": args.graph_kind, "fp16": args.fp16, **settings}
    replaces = same_graph(args.overwrite, noted)
    check_target(args.output, replaces)
    with _folder(args) as folder:
        graph = _write(args, settings | {"folder": folder}, noted, replaces)
    print(f"{args.output}: {graph.n_nodes:,} nodes, {graph.n_edges:,} directed edges (mean "
          f"degree {graph.n_edges / graph.n_nodes:.2f}), {graph.n_features} features, "
          f"{graph.n_classes} classes; {time.perf_counter() - began:.1f} s")
    return 0


def _folder(args: argparse.Namespace):
    """A folder beside the output for what a large graph does not keep in memory."""
    from hpcgcn.files.tidy import temporary_folder
    numbers_in_all = args.nodes * (args.degree * 2 + args.features)
    if args.graph_kind == "grid" or numbers_in_all < IN_MEMORY:
        return contextlib.nullcontext()
    return temporary_folder(os.path.dirname(os.path.abspath(args.output)))


def _write(args: argparse.Namespace, settings: dict, noted: dict, replaces):
    """Make the graph and its file."""
    from hpcgcn.files.atomic import explained
    from hpcgcn.graph import generate
    from hpcgcn.graph.store import validate_graph, write_graph

    with explained(args.output):
        graph = getattr(generate, f"generate_{args.graph_kind}")(**settings)
    if args.fp16:
        graph.features = graph.features.astype("float16")
    validate_graph(graph)
    write_graph(args.output, graph, command=text.command_line(), settings=noted, replaces=replaces)
    return graph


def _add_kind(parser: argparse.ArgumentParser, kind: str):
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="graph file to write")
    add_overwrite(parser, "another graph file")
    parser.add_argument("--nodes", type=int, default=10_000, metavar="N",
                        help="number of nodes (%(default)s)")
    parser.add_argument("--degree", type=int if kind == "grid" else float,
                        default=4 if kind == "grid" else 20,
                        metavar="D", help="mean number of neighbours (%(default)s)")
    parser.add_argument("--features", type=int, default=64, metavar="F",
                        help="features per node (%(default)s)")
    parser.add_argument("--classes", type=int, default=8, metavar="C",
                        help="number of classes (%(default)s)")
    parser.add_argument("--seed", type=numbers.seed, default=0, metavar="S",
                        help="seed of all random draws (%(default)s)")
    parser.add_argument("--feature-noise", type=float, default=1.2, metavar="X",
                        help="deviation of each feature from its class's mean, a unit vector "
                             "(%(default)s)")
    parser.add_argument("--train", type=float, default=0.6, metavar="X",
                        help="share of training nodes (%(default)s)")
    parser.add_argument("--val", type=float, default=0.2, metavar="X",
                        help="share of validation nodes; the rest is for the test (%(default)s)")
    parser.add_argument("--fp16", action="store_true", help="store features in 16 bits")
    if kind == "sbm":
        parser.add_argument("--homophily", type=float, default=0.8, metavar="X",
                            help="share of edges within a block (%(default)s)")
        parser.add_argument("--power", type=float, default=2.5, metavar="X",
                            help="exponent of the degree distribution (%(default)s)")
        parser.add_argument("--label-noise", type=float, default=0.05, metavar="X",
                            help="share of nodes with the label of another class (%(default)s)")
        parser.add_argument("--communities", type=int, default=1, metavar="K",
                            help="blocks per class: more of them partition better (%(default)s)")
    if kind == "rmat":
        parser.add_argument("--quadrants", type=float, nargs=4, default=[0.57, 0.19, 0.19, 0.05],
                            metavar="P",
                            help="probabilities of the four quadrants (0.57 0.19 0.19 0.05)")


def _settings(args: argparse.Namespace) -> dict:
    """The arguments of the generator."""
    names = {"nodes": "n_nodes", "features": "n_features", "classes": "n_classes"}
    own = ("nodes", "degree", "features", "classes", "seed", "feature_noise", "train", "val",
           "homophily", "power", "label_noise", "communities", "quadrants")
    return {names.get(name, name): getattr(args, name) for name in own if hasattr(args, name)}
