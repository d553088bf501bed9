"""hpcgcn import: a graph of another program in, a graph file out."""

from __future__ import annotations

import argparse
import os
import sys
import time

from hpcgcn.cli import numbers, text
from hpcgcn.cli.output import add_overwrite, same_graph
from hpcgcn.errors import printable

MOST_SPLITS = 10_000
_FORMATS = {
    "planetoid": "ind.NAME.x and its seven companions (Cora, Citeseer, Pubmed)",
    "npz": "one .npz: indptr/indices, edges/node_features/train_masks, or "
           "adj_data/attr_data",
    "ogb": "a raw folder with edge.csv.gz, node-feat.csv.gz, node-label.csv.gz, split/*/",
    "graphsaint": "a folder with adj_full.npz, feats.npy, class_map.json, role.json",
    "dgl-reddit": "reddit_data.npz and reddit_graph.npz",
    "csv": "an edge list, and a table of nodes with a header (id, label, split, "
           "features); plain or gzip",
    "mtx": "Matrix Market, with --nodes for labels and features",
    "pyg": "torch.save of a PyG Data object (needs torch_geometric)",
    "dgl": "dgl.save_graphs of one graph (needs dgl)",
}


def add_arguments(parser: argparse.ArgumentParser):
    """Declare the arguments of this command."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.usage = "hpcgcn import [FORMAT] SOURCE... -o g.h5 [options]"
    parser.epilog = "formats (found out where the files tell):\n" + "\n".join(
        f"  {name:<11} {words}" for name, words in _FORMATS.items())
    parser.add_argument("source", nargs="+", metavar="[FORMAT] SOURCE",
                        help="files or folders, after the format if it is given")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="graph file to write")
    parser.add_argument("--name", help="planetoid: which data set of the folder; ogb: which split")
    add_overwrite(parser, "another graph file")
    _add_choices(parser.add_argument_group("choices"))
    _add_columns(parser.add_argument_group("columns of csv files"))


def _add_choices(group):
    group.add_argument("--split", nargs="+", default=["auto"], metavar="RULE",
                       help="given, public, none, random 60/20/20, or per-class 20/30/rest; "
                            "auto: given, or else random")
    group.add_argument("--splits", type=numbers.whole(1, MOST_SPLITS), default=1, metavar="K",
                       help="draw K splits, with seeds S, S+1, ... (1)")
    group.add_argument("--seed", type=numbers.seed, default=0, metavar="S",
                       help="seed of the split (0)")
    group.add_argument("--undirected", action="store_true", help="add every edge the other way too")
    group.add_argument("--no-edge-weights", action="store_true",
                       help="leave weights of edges out: every edge counts 1")
    group.add_argument("--largest-component", action="store_true",
                       help="keep only the nodes of the largest component")
    group.add_argument("--drop-duplicates", action="store_true",
                       help="csv, mtx: an edge that is listed twice is no error")
    group.add_argument("--normalise-features", choices=("row", "standard"),
                       help="row: values of a node add up to 1; standard: mean 0, deviation 1 "
                            "over the training nodes")
    group.add_argument("--make-features", choices=("degree", "identity"), default="degree",
                       help="for a graph that has none: one column per degree, or per node "
                            "(degree)")


def _add_columns(group):
    group.add_argument("--nodes", metavar="FILE", help="the table of nodes (csv, mtx)")
    group.add_argument("--features", metavar="FILE",
                       help="features of the nodes of an edge list (csv, mtx): npy, npz, SciPy's "
                            "save_npz, csv, parquet, (node, feature, value) rows, svmlight, mtx, "
                            "or JSON lists of the features of each node")
    group.add_argument("--features-format", choices=("auto", "dense", "triples", "svmlight"),
                       default="auto", help="what a text file of features is (auto: as it looks)")
    group.add_argument("--labels", metavar="FILE",
                       help="labels of the nodes of an edge list (csv, mtx): csv, json, npy, npz "
                            "or parquet")
    group.add_argument("--header", choices=("auto", "yes", "no"), default="auto",
                       help="does the edge list begin with names (auto)")
    group.add_argument("--ids", choices=("auto", "number", "name"), default="auto",
                       help="number: ids are 0..n-1; name: any ids, numbered anew and kept as "
                            "names (auto)")
    group.add_argument("--edge-columns", metavar="A,B", help="columns of source and target")
    group.add_argument("--weight-column", metavar="NAME",
                       help="column of edge weights: its name, or its number from 1 where there is "
                            "no header (weight)")
    group.add_argument("--id-column", metavar="NAME", help="column of the node's id (id)")
    group.add_argument("--label-column", metavar="NAME", help="column of the class (label)")
    group.add_argument("--split-column", metavar="NAME",
                       help="column of train, val or test (split)")
    group.add_argument("--feature-columns", metavar="A,B,...",
                       help="columns of features, or none (all others)")
    group.add_argument("--skip-columns", metavar="A,B,...",
                       help="columns to leave out, such as those of text")


def run(args: argparse.Namespace) -> int:
    """Run this command; returns the exit code."""
    from hpcgcn.files.replace import check_target
    from hpcgcn.files.tidy import temporary_folder
    from hpcgcn.formats.finish import finished
    from hpcgcn.formats.table import READERS, read_draft
    from hpcgcn.graph.store import write_graph

    began = time.perf_counter()
    chosen = (args.source[0] if args.source[0] in READERS
              and (len(args.source) > 1 or not os.path.exists(args.source[0])) else None)
    sources = args.source[1:] if chosen else args.source
    choices, options, noted = _choices(args), _options(args), {"sources": sources, **_given(args)}
    replaces = same_graph(args.overwrite, noted)
    inputs = [*sources, *filter(None, [args.nodes, args.features, args.labels])]
    check_target(args.output, replaces, inputs)
    # Temporary files go where the graph goes: there is room for it.
    with temporary_folder(os.path.dirname(os.path.abspath(args.output))) as options.scratch:
        format_name, draft = read_draft(sources, chosen, options)
        with finished(draft, choices, options.scratch) as (graph, notes):
            write_graph(args.output, graph, command=text.command_line(),
                        settings={"format": format_name, **noted}, replaces=replaces, inputs=inputs)
            _report(args.output, format_name, graph, notes, time.perf_counter() - began)
    return 0


def _choices(args: argparse.Namespace):
    from hpcgcn.formats.finish import Choices
    from hpcgcn.formats.splits import parse_split
    return Choices(parse_split(args.split), args.splits, args.seed, args.undirected,
                   args.largest_component, args.drop_duplicates,
                   args.normalise_features, args.make_features, not args.no_edge_weights)


def _options(args: argparse.Namespace):
    from hpcgcn.errors import ConfigError
    from hpcgcn.formats.draft import ReadOptions
    edge_columns = tuple(args.edge_columns.split(",")) if args.edge_columns else None
    if edge_columns and len(edge_columns) != 2:
        raise ConfigError(f"--edge-columns {args.edge_columns}: expected two names, as in "
                          "source,target")
    return ReadOptions(args.name, args.nodes, args.header, args.ids, edge_columns,
                       not args.no_edge_weights, args.weight_column, args.id_column,
                       args.label_column, args.split_column,
                       _listed(args.feature_columns), _listed(args.skip_columns),
                       args.features, args.features_format, args.labels)


def _listed(names: str | None) -> list[str] | None:
    return names.split(",") if names else None


def _given(args: argparse.Namespace) -> dict:
    """The choices that shape the graph, for the file's header."""
    return {"split": " ".join(args.split), "splits": args.splits, "seed": args.seed,
            "undirected": args.undirected, "largest_component": args.largest_component,
            "normalise_features": args.normalise_features or "",
            "make_features": args.make_features, "edge_weights": not args.no_edge_weights,
            **{key: given for key in ("features", "labels")
               if (given := getattr(args, key)) is not None}}


def _report(path: str, format_name: str, graph, notes: list[str], seconds: float):
    kind = "directed" if graph.directed else "undirected"
    kind += "" if graph.edge_weights is None else ", weighted"
    print(f"{path}: {format_name}, {graph.n_nodes:,} nodes, {graph.n_edges:,} entries ({kind}), "
          f"{graph.n_features:,} features, {graph.n_classes} classes, {len(graph.split)} "
          f"split{'s' if len(graph.split) > 1 else ''}; {seconds:.1f} s "
          f"({graph.n_edges / seconds / 1e6:.2f} M entries/s)")
    for note in notes:
        print(f"  note: {printable(note, 1000)}", file=sys.stderr)
