"""hpcgcn train: one graph in, one trained model out, on any number of ranks."""

EPILOG = """exit codes: 0 done; 2 an error in what was given (one message says which); 75 stopped
early at an epoch boundary with a checkpoint: run the same command with --resume auto.
--time-limit, Ctrl-C without a launcher, SIGTERM and SIGUSR1 to a rank, and SIGUSR1 to mpiexec
stop a run so; on SIGTERM or Ctrl-C Open MPI's mpiexec kills the ranks within a fraction of a
second, and its exit code is 1."""

MANY_RANKS = 8


def add_arguments(parser):
    """Declare the arguments of this command."""
    from hpcgcn.config import add_flags
    parser.epilog = EPILOG
    parser.add_argument("graph", help="a graph file, or a partition file for this number of ranks")
    parser.add_argument("--config", metavar="RUN.toml",
                        help="settings from a file; flags win over it")
    parser.add_argument("--fast-check", action="store_true",
                        help="one epoch of everything with these settings (train, evaluate, "
                             "checkpoint, resume, predict, report) in a temporary folder: says "
                             "what works and how long it took")
    add_flags(parser)


def run(args) -> int:
    """Run this command; returns the exit code."""
    from hpcgcn.config import FIELDS, checked
    from hpcgcn.errors import ConfigError
    from hpcgcn.mpi.watchdog import START_PATIENCE
    from hpcgcn.mpi.world import run_ranks
    if not getattr(args, "quiet", False):
        _announce()
    from hpcgcn.train.gpu import asks_for_gpu, prepare_gpu
    if asks_for_gpu(vars(args), args.config):
        prepare_gpu()
    limit = FIELDS["stall_timeout"]
    try:
        seconds = checked(limit, getattr(args, "stall_timeout", limit.default), "the command line")
    except ConfigError:
        seconds = limit.default          # refused below, by all ranks together
    return run_ranks(_train, args, patience=START_PATIENCE * seconds)


def _announce():
    """Many ranks take seconds to load Python and connect: say so before they do."""
    import logging

    from hpcgcn.mpi.launcher import launched_rank, launched_size
    _, ranks = launched_size() or ("", 1)
    if ranks >= MANY_RANKS and launched_rank() == "0":
        logging.getLogger(__name__).info("starting %d ranks ...", ranks)


def _train(comm, args) -> int:
    from hpcgcn.config import FIELDS, OLD_FIELDS, RENAMED, make_config
    from hpcgcn.logs import set_console_format, show_no_notes
    from hpcgcn.mpi.world import on_root
    from hpcgcn.train.run import train_model
    given = {key: value for key, value in vars(args).items()
             if key in FIELDS or key in RENAMED or key in OLD_FIELDS}
    config = on_root(comm, make_config, given, args.config, "the command line")
    set_console_format(config.log_format)
    if config.quiet:
        show_no_notes()
    if args.fast_check:
        from hpcgcn.cli.fast_check import fast_check
        return fast_check(comm, args.graph, config)
    return train_model(args.graph, config, comm).exit_code
