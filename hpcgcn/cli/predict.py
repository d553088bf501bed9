"""hpcgcn predict: classes, logits or embeddings of every node, exact, on any number of ranks."""


def add_arguments(parser):
    """Declare the arguments of this command."""
    from hpcgcn.cli.evaluate import add_backend
    parser.add_argument("run", nargs="?", help="folder of a run (runs/NAME), or of one "
                                               "checkpoint; left out with --weights")
    parser.add_argument("graph", help="a graph file, or a partition file for this number of ranks")
    parser.add_argument("-o", "--output", required=True,
                        help="HDF5 (.h5) or CSV (.csv) file to write, rows in the order of the "
                             "graph")
    parser.add_argument("--what", choices=("classes", "logits", "embeddings"), default="classes",
                        help="what to write of every node (%(default)s)")
    parser.add_argument("--layer", type=int, default=1,
                        help="which hidden layer's embeddings; the first is 1 (%(default)s)")
    parser.add_argument("--which", choices=("best", "last"), default="best",
                        help="parameters of the best validation, or the last (%(default)s)")
    add_backend(parser)
    parser.add_argument("--weights", metavar="FILE",
                        help="a model trained elsewhere, in place of a run: safetensors or .pt "
                             "of PyG or DGL")
    from hpcgcn.cli.output import add_overwrite
    from hpcgcn.cli.weights import add_constants
    add_overwrite(parser, "predictions of another run or graph, or a CSV file")
    add_constants(parser)


def run(args) -> int:
    """Run this command; returns the exit code."""
    from hpcgcn.mpi.world import run_ranks
    return run_ranks(_predict, args)


def _predict(comm, args) -> int:
    import sys

    from hpcgcn.mpi.world import on_root
    from hpcgcn.train.inference import predict
    on_root(comm, _check_output, args)
    model = _model(comm, args)
    predict(model, args.output, args.what, args.layer, " ".join(sys.argv), args.graph,
            args.overwrite)
    model.close()
    if comm.rank == 0:
        from hpcgcn.cli.output import show
        show(f"{args.what} of {model.part.n_nodes} nodes: {args.output}")
    return 0


def _check_output(args):
    """Before the model is loaded and run."""
    from hpcgcn.files.marker import run_uuid
    from hpcgcn.files.replace import check_target
    from hpcgcn.train.predictions import predictions_replace
    run = run_uuid(args.run) if args.run else ""
    check_target(args.output, predictions_replace(args.output, args.graph, run, args.overwrite),
                 [name for name in (args.run, args.graph, args.weights) if name])


def _model(comm, args):
    """The model of a run, or of a weight file."""
    from hpcgcn.cli.evaluate import overrides
    from hpcgcn.cli.weights import constants
    from hpcgcn.errors import ConfigError
    from hpcgcn.mpi.world import collective_errors
    with collective_errors(comm):
        if (args.run is None) == (args.weights is None):
            raise ConfigError("predict takes either the folder of a run or --weights FILE, and "
                              "then the graph")
        if constants(args) and args.run is not None:
            raise ConfigError("--alpha, --lambda and --self-loops go with --weights; a run knows "
                              "its own")
    if args.weights is not None:
        from hpcgcn.weights.files import open_weights
        return open_weights(args.weights, args.graph, constants(args), overrides(args), comm)
    from hpcgcn.train.inference import open_model
    return open_model(args.run, args.graph, args.which, overrides(args), comm)
