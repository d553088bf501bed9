"""hpcgcn doctor: what this machine offers, and whether training can run."""


def add_arguments(parser):
    """Declare the arguments of this command."""
    parser.add_argument("--json", action="store_true", help="machine-readable")


def run(args) -> int:
    """Run this command; returns the exit code."""
    import json

    from hpcgcn.doctor import examine
    rows = examine()
    can_run = all(row["ok"] for row in rows if row["needed"])
    if args.json:
        print(json.dumps({"can_run": can_run, "checks": rows}, indent=2))
    else:
        for row in rows:
            mark = "ok" if row["ok"] else "MISSING" if row["needed"] else "-"
            print(f"{row['what']:<16} {mark:<8} {row['found']}")
        print("training can run" if can_run
              else "training can NOT run: see the rows marked MISSING")
    return 0 if can_run else 2
