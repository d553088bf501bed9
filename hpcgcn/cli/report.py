"""hpcgcn report: runs side by side, in one page that opens offline."""

HELP = "compare runs in one HTML page that opens offline"


def add_arguments(parser):
    parser.add_argument("runs", nargs="+", metavar="RUN", help="folder of a run (what `hpcgcn train` names at its end)")
    parser.add_argument("-o", "--output", metavar="FILE.html",
                        help="the page to write [report.html; none if only --png is given]")
    parser.add_argument("--png", metavar="FILE.png", help="the curves alone as a picture (needs matplotlib)")
    parser.add_argument("--title", default="", help="heading of the page")


def run(args) -> int:
    from hpcgcn.report.runs import read_runs
    runs = read_runs(args.runs)
    for each in runs:
        for note in each.notes:
            _say(f"{each.label}: {note}")
    if args.png:
        from hpcgcn.report.picture import write_picture
        write_picture(args.png, runs)
        print(f"curves: {args.png}")
    if args.output or not args.png:
        from hpcgcn.report.page import write_page
        path = args.output or "report.html"
        write_page(path, runs, args.title)
        print(f"report: {path}")
    return 0


def _say(note: str):
    import sys
    print(f"hpcgcn: note: {note}", file=sys.stderr)
