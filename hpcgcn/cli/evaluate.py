"""hpcgcn evaluate: exact scores of a trained model, on any number of ranks."""


def add_arguments(parser):
    """Declare the arguments of this command."""
    parser.add_argument("run", help="folder of a run (runs/NAME), or of one checkpoint")
    parser.add_argument("graph", help="a graph file, or a partition file for this number of ranks")
    parser.add_argument("--which", choices=("best", "last"), default="best",
                        help="parameters of the best validation, or the last (%(default)s)")
    parser.add_argument("--split-index", type=int,
                        help="another split than the run's, for files that hold several")
    parser.add_argument("--metric", default="auto", metavar="NAME",
                        help="accuracy, micro-f1, macro-f1, roc-auc, average-precision, or all "
                             "that the labels allow; auto: the run's (%(default)s)")
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

    from hpcgcn.config.metric_names import ALL, METRICS
    from hpcgcn.mpi.world import collective_errors
    from hpcgcn.train.inference import open_model
    model = open_model(args.run, args.graph, args.which, overrides(args), comm)
    with collective_errors(comm):
        names = model.metrics(args.metric)
    by_metric = {name: model.scores(name) for name in names}
    model.close()
    if comm.rank == 0:
        from hpcgcn.cli.output import show
        if args.json:
            shown = [{"metric": METRICS[name], **{k: v if v == v else None for k, v in by.items()}}
                     for name, by in by_metric.items()]
            show(json.dumps(shown if args.metric == ALL else shown[0]))
        else:
            show("\n".join(f"{split:<6} {METRICS[name]} {value:.4f}"
                           for name, by in by_metric.items() for split, value in by.items()))
    return 0
