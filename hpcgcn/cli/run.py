"""hpcgcn run list: all runs of a folder in a table, with their settings and results."""

from __future__ import annotations


def add_arguments(parser):
    """Declare the arguments of this command."""
    commands = parser.add_subparsers(dest="action", metavar="list", required=True)
    listing = commands.add_parser("list", help="a line per run", description="a line per run",
                                  allow_abbrev=False)
    listing.add_argument("folder", nargs="?", default="runs",
                         help="where the folders of runs are [%(default)s]")
    listing.add_argument("--sort", choices=("name", "test", "val", "seconds"), default="name",
                         help="by name, or the best first [%(default)s]")
    listing.add_argument("--json", action="store_true", help="print the table as JSON")


def run(args) -> int:
    """Run this command; returns the exit code."""
    import json

    from hpcgcn.report.listing import facts, runs_in
    rows = _sorted([facts(run) for run in runs_in(args.folder)], args.sort)
    if args.json:
        print(json.dumps(rows, indent=1))
    elif rows:
        _print(rows)
    else:
        print(f"no run in {args.folder}")
    return 0


def _sorted(rows: list[dict], by: str) -> list[dict]:
    if by == "name":
        return rows
    if by == "seconds":
        return sorted(rows, key=lambda row: row["seconds_per_epoch"] or float("inf"))
    return sorted(rows, key=lambda row: -(row[by] if row[by] is not None else -1.0))


def _print(rows: list[dict]):
    from hpcgcn.cli import text

    def score(value) -> str:
        return "" if value is None else f"{100 * value:.2f}"
    print(text.table(
        ["run", "state", "model", "method", "seed", "ranks", "epochs", "val %", "test %",
         "ms/epoch", "sent/epoch"],
        [[row["name"], row["state"], *(("" if row[name] is None else row[name])
                                       for name in ("model", "method", "seed")),
          "" if row["ranks"] is None else int(row["ranks"]), row["epochs"], score(row["val"]),
          score(row["test"]), f"{1000 * row['seconds_per_epoch']:.1f}",
          text.size(round(row["bytes_per_epoch"]))] for row in rows]))
