"""hpcgcn report: runs side by side, in one page that opens offline."""

from hpcgcn.cli.output import add_overwrite, foreign


def add_arguments(parser):
    """Declare the arguments of this command."""
    parser.add_argument("runs", nargs="+", metavar="RUN",
                        help="folder of a run (what `hpcgcn train` names at its end)")
    parser.add_argument("-o", "--output", metavar="FILE.html",
                        help="the page to write [report.html; none if only --png is given]")
    parser.add_argument("--png", metavar="FILE.png",
                        help="the curves alone as a picture (needs matplotlib)")
    parser.add_argument("--title", default="", help="heading of the page")
    add_overwrite(parser, "a report of other runs (--png: any file)")


def run(args) -> int:
    """Run this command; returns the exit code."""
    from hpcgcn.files.replace import check_target
    from hpcgcn.report.page import page_replaces, write_page
    from hpcgcn.report.runs import read_runs
    skipped: list[str] = []
    runs = read_runs(args.runs, skipped)
    for note in skipped:
        _say(note)
    for each in runs:
        for note in each.notes:
            _say(f"{each.label}: {note}")
    path = args.output or (None if args.png else "report.html")
    if path:
        check_target(path, page_replaces(runs, args.overwrite), args.runs)
    if args.png:
        from hpcgcn.report.picture import write_picture
        write_picture(args.png, runs, foreign(args.overwrite))
        print(f"curves: {args.png}")
    if path:
        write_page(path, runs, args.title, args.overwrite)
        print(f"report: {path}")
    return 0


def _say(note: str):
    import sys
    print(f"hpcgcn: note: {note}", file=sys.stderr)
