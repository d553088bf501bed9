"""hpcgcn weights: a trained model's weights for PyG and DGL, and theirs for us."""

from __future__ import annotations

import argparse
import sys

from hpcgcn.cli.output import add_overwrite

DIRECTED = ("for undirected graphs: on directed ones DGL's GraphConv weighs an edge by the "
            "out-degree of its source, and models here by the in-degree")


def add_arguments(parser: argparse.ArgumentParser):
    """Declare the arguments of this command."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="{export,import}")
    out = actions.add_parser("export", help="a run's weights as safetensors", allow_abbrev=False)
    out.add_argument("run", help="folder of a run (runs/NAME), or of one checkpoint")
    out.add_argument("-o", "--output", required=True, metavar="FILE",
                     help="file to write, NAME.safetensors")
    out.add_argument("--to", choices=("pyg", "dgl", "hpcgcn"), default="pyg",
                     help="whose names and layouts (pyg)")
    out.add_argument("--which", choices=("best", "last"), default="best",
                     help="parameters of the best validation, or the last (best)")
    add_overwrite(out, "weights of another run")
    into = actions.add_parser("import", help="a run folder from a safetensors or .pt file",
                              allow_abbrev=False)
    into.add_argument("weights", help="safetensors file, or a .pt file of model.state_dict()")
    into.add_argument("-o", "--output", metavar="RUN",
                      help="folder of the run to make; without it, only say what the file holds")
    add_constants(into)


def add_constants(parser: argparse.ArgumentParser):
    """What weights do not tell."""
    parser.add_argument("--alpha", type=float, default=argparse.SUPPRESS,
                        help="share of the initial residual (0.1)")
    parser.add_argument("--lambda", dest="lambda_", type=float, default=argparse.SUPPRESS,
                        help="strength of the identity mapping, beta_l = log(lambda / l + 1); "
                             "theta in PyG (0.5)")
    parser.add_argument("--self-loops", choices=("auto", "yes", "no"), default=argparse.SUPPRESS,
                        help="does a node count among its neighbours; auto: as its model's default")


def constants(args: argparse.Namespace) -> dict:
    """The constants that were given, by their keys."""
    names = {"alpha": "alpha", "lambda_": "lambda", "self_loops": "self_loops"}
    return {key: getattr(args, name) for name, key in names.items() if hasattr(args, name)}


def run(args: argparse.Namespace) -> int:
    """Run this command; returns the exit code."""
    return _export(args) if args.action == "export" else _import(args)


def _export(args: argparse.Namespace) -> int:
    from hpcgcn.files.marker import run_uuid
    from hpcgcn.files.replace import check_target
    from hpcgcn.nn.models import MODELS
    from hpcgcn.weights.files import check_ending, run_parameters, weights_replace, write_weights
    check_ending(args.output)
    run = run_uuid(args.run)
    replaces = weights_replace(run, args.overwrite)
    check_target(args.output, replaces, [args.run])
    _, shape, parameters = run_parameters(args.run, args.which)
    write_weights(args.output, args.to, shape, parameters, run, replaces, [args.run])
    print(f"{args.output}: {_words(args.to, shape)}")
    if args.to in MODELS[shape.model].out_degrees_in:
        print(f"  note: {DIRECTED}", file=sys.stderr)
    return 0


def _import(args: argparse.Namespace) -> int:
    from hpcgcn.weights.files import imported_config, make_run, read_weights
    weights, metadata = read_weights(args.weights)
    config = imported_config(args.weights, weights, metadata, constants(args))
    print(f"{args.weights}: {_words(weights.framework, weights.shape)}")
    if args.output:
        make_run(args.output, config, weights)
        print(f"{args.output}: a run with these weights, for evaluate and predict")
    if weights.weighs_out_degrees:
        print(f"  note: {DIRECTED}", file=sys.stderr)
    return 0


def _words(framework: str, shape) -> str:
    linear = f", the last {shape.linear_layers} plain linear" if shape.linear_layers else ""
    return (f"{shape.model} with {shape.layers} layers{linear}, {shape.n_features} features, "
            f"{shape.n_classes} classes, names and layouts of {framework}")
