"""hpcgcn evaluate: exact scores of a trained model, on any number of ranks."""


def add_arguments(parser):
    """Declare the arguments of this command."""
    parser.add_argument("run", help="folder of a run (runs/NAME), or of one checkpoint")
    parser.add_argument("graph", help="a graph file, or a partition file for this number of ranks")
    parser.add_argument("--which", choices=("best", "last"), default="best",
                        help="parameters of the best validation, or the last (%(default)s)")
    parser.add_argument("--split-index", type=int,
                        help="another split than the run's, for files that hold several")
    add_backend(parser)
    parser.add_argument("--json", action="store_true", help="machine-readable")


def add_backend(parser):
    """The flag for another backend."""
    from hpcgcn.config import FIELDS
    from hpcgcn.setting import choices_of
    parser.add_argument("--backend", choices=choices_of(FIELDS["backend"]),
                        help="what computes, if not as in the run")


def overrides(args) -> dict:
    """Settings of the run that a command may change."""
    return {name: getattr(args, name)
            for name in ("split_index", "backend") if getattr(args, name, None) is not None}


def run(args) -> int:
    """Run this command; returns the exit code."""
    from hpcgcn.mpi.world import run_ranks
    return run_ranks(_evaluate, args)


def _evaluate(comm, args) -> int:
    import json

    from hpcgcn.train.inference import open_model
    model = open_model(args.run, args.graph, args.which, overrides(args), comm)
    scores = model.scores()
    metric = "micro-F1" if model.part.multilabel else "accuracy"
    model.close()
    if comm.rank == 0:
        if args.json:
            print(json.dumps({"metric": metric,
                              **{k: v if v == v else None for k, v in scores.items()}}))
        else:
            print("\n".join(f"{name:<6} {metric} {value:.4f}" for name, value in scores.items()))
    return 0
