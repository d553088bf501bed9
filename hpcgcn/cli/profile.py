"""hpcgcn profile: where the time of a run's epochs went, per layer and operation."""

from __future__ import annotations

EPILOG = """Train with --trace first: a run that was not traced has no profile. Seconds are those of
an epoch: the mean over ranks, and of the slowest rank; a slowest rank far above the mean waits
elsewhere for nobody, others wait for it. Bytes are those that all ranks send. --by kind adds up
over layers."""


def add_arguments(parser):
    """Declare the arguments of this command."""
    parser.epilog = EPILOG
    parser.add_argument("run", metavar="RUN", help="folder of a run that was trained with --trace")
    parser.add_argument("--by", choices=("operation", "kind"), default="operation",
                        help="a row for every operation of every layer, or for every kind "
                             "[%(default)s]")
    parser.add_argument("--json", action="store_true", help="print the table as JSON")


def run(args) -> int:
    """Run this command; returns the exit code."""
    import json

    from hpcgcn.cli.trace import recorded_epochs
    from hpcgcn.timeline.profile import kind_alone, profile
    from hpcgcn.timeline.read import read_timeline
    timeline = read_timeline(args.run)
    epochs = recorded_epochs(args.run, timeline)
    rows = (profile(timeline, epochs, kind_alone) if args.by == "kind"
            else profile(timeline, epochs))
    if args.json:
        print(json.dumps([{**row.activity._asdict(), "mean_seconds": row.mean_seconds,
                           "most_seconds": row.most_seconds, "share": row.share,
                           "bytes_sent": row.bytes_sent} for row in rows], indent=1))
        return 0
    _print(timeline, epochs, rows)
    return 0


def _print(timeline, epochs, rows):
    from hpcgcn.cli import text
    from hpcgcn.timeline.chrome import in_words
    from hpcgcn.timeline.profile import products
    shown = [[in_words(row.activity), _milliseconds(row.mean_seconds),
              _milliseconds(row.most_seconds), f"{100 * row.share:.1f} %",
              text.size(round(row.bytes_sent)) if row.bytes_sent else ""]
             for row in rows if row.share >= 0.0005 or row.bytes_sent]
    mean, most = (sum(values) for values in zip(*((row.mean_seconds, row.most_seconds)
                                                  for row in rows)))
    print(text.table(["operation", "ms", "slowest rank", "share", "sent"], shown))
    counted = products(timeline, epochs)
    if counted:
        print("\n" + text.table(
            ["sparse products of all ranks", "million multiply-adds", "GF/s per rank"],
            [[f"hop {row.hop}, {row.direction}", f"{row.multiply_adds / 1e6:,.1f}",
              f"{row.gigaflops:.2f}"] for row in counted]))
    print(f"\nepochs {epochs[0]} to {epochs[-1]} of {len(timeline.ranks)} ranks: "
          f"{_milliseconds(mean)} ms per epoch; overlap hides "
          f"{100 * timeline.hidden_share(epochs):.1f} % of the time that messages are in flight")


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.3f}"
