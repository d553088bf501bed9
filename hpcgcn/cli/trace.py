"""hpcgcn trace: the timeline of a run as a file for Perfetto and chrome://tracing."""

from hpcgcn.cli.output import add_overwrite, foreign

EPILOG = """Train with --trace first: a run that was not traced has no timeline. Open the file at
https://ui.perfetto.dev or in chrome://tracing; `hpcgcn report` draws two epochs of it without
either."""


def add_arguments(parser):
    """Declare the arguments of this command."""
    parser.epilog = EPILOG
    parser.add_argument("run", metavar="RUN", help="folder of a run that was trained with --trace")
    parser.add_argument("-o", "--output", metavar="FILE.json", default="trace.json",
                        help="the file to write [%(default)s]")
    add_overwrite(parser, "another file")


def run(args) -> int:
    """Run this command; returns the exit code."""
    from hpcgcn.files.atomic import atomic_text
    from hpcgcn.files.replace import check_target
    from hpcgcn.timeline.chrome import chrome_trace
    from hpcgcn.timeline.read import read_timeline
    replaces = foreign(args.overwrite)
    check_target(args.output, replaces, [args.run])
    timeline = read_timeline(args.run)
    epochs = recorded_epochs(args.run, timeline)
    atomic_text(args.output, chrome_trace(timeline, args.run), replaces, [args.run])
    print(f"{len(timeline.ranks)} ranks, epochs {epochs[0]} to {epochs[-1]}, "
          f"{len(timeline.messages):,} messages: {args.output}")
    return 0


def recorded_epochs(run: str, timeline) -> list[int]:
    """The epochs of a timeline; a run that has not reached its window has none."""
    from hpcgcn.errors import FileError
    epochs = timeline.epochs()
    if not epochs:
        raise FileError(f"{run}: no epoch was recorded by all ranks; train again with a window "
                        "that the run reaches (--trace last:4)")
    return epochs
