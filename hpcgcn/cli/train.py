"""hpcgcn train: one graph in, one trained model out, on any number of ranks."""

HELP = "train a model on all ranks of this MPI job"

EPILOG = """exit codes: 0 done; 2 a mistake in what was given (one message says which); 75 stopped early at an epoch
boundary (SIGTERM, SIGUSR1 or --time-limit) with a checkpoint: run the same command with --resume auto."""


def add_arguments(parser):
    from hpcgcn.config import add_flags
    parser.epilog = EPILOG
    parser.add_argument("graph", help="a graph file, or a partition file for this number of ranks")
    parser.add_argument("--config", metavar="RUN.toml", help="settings from a file; flags win over it")
    add_flags(parser)


def run(args) -> int:
    from hpcgcn.config import Config
    from hpcgcn.mpi.watchdog import START_PATIENCE
    from hpcgcn.mpi.world import run_ranks
    given = getattr(args, "stall_timeout", None)
    return run_ranks(_train, args, patience=START_PATIENCE * float(Config.stall_timeout if given is None else given))


def _train(comm, args) -> int:
    from hpcgcn.config import FIELDS, make_config
    from hpcgcn.mpi.world import on_root
    from hpcgcn.train.run import train_model
    given = {name: value for name, value in vars(args).items() if name in FIELDS}
    config = on_root(comm, make_config, {k.rstrip("_"): v for k, v in given.items()}, args.config, "the command line")
    return train_model(args.graph, config, comm).exit_code
