"""hpcgcn predict: classes, logits or embeddings of every node, exact, on any number of ranks."""

HELP = "classes, logits or embeddings of every node"


def add_arguments(parser):
    parser.add_argument("run", help="folder of a run (runs/NAME), or of one checkpoint")
    parser.add_argument("graph", help="a graph file, or a partition file for this number of ranks")
    parser.add_argument("-o", "--output", required=True, help="HDF5 file to write, rows in the order of the graph file")
    parser.add_argument("--what", choices=("classes", "logits", "embeddings"), default="classes")
    parser.add_argument("--layer", type=int, default=1, help="which hidden layer's embeddings; 1 is the first")
    parser.add_argument("--which", choices=("best", "last"), default="best", help="parameters of the best validation, or the last")
    parser.add_argument("--backend", help="another backend than the run's")


def run(args) -> int:
    from hpcgcn.mpi.world import run_ranks
    return run_ranks(_predict, args)


def _predict(comm, args) -> int:
    import sys

    from hpcgcn.cli.evaluate import overrides
    from hpcgcn.train.inference import open_model, predict
    model = open_model(comm, args.run, args.graph, args.which, overrides(args))
    predict(comm, model, args.output, args.what, args.layer, " ".join(sys.argv))
    model.close()
    if comm.rank == 0:
        print(f"{args.what} of {model.part.n_nodes} nodes: {args.output}")
    return 0
