"""hpcgcn watch: the curves of a run while it trains, from the files that it writes."""

from __future__ import annotations

import sys
import time


def add_arguments(parser):
    """Declare the arguments of this command."""
    parser.add_argument("run", metavar="RUN", help="folder of a run, on any host that sees it")
    parser.add_argument("--every", type=float, default=2.0, metavar="SECONDS",
                        help="seconds between two looks [%(default)s]")
    parser.add_argument("--once", action="store_true",
                        help="look once, and print; so does output that is no terminal")


def run(args) -> int:
    """Run this command; returns the exit code. Ends when the run does, and on Ctrl-C."""
    from hpcgcn.report.watch import is_over
    _check(args.every)
    if args.once or not sys.stdout.isatty():
        print(_look(args.run))
        return 0
    try:
        while True:
            over = is_over(args.run)
            # From the top; what a longer frame left below goes.
            print("\x1b[H\x1b[2J" + _look(args.run), flush=True)
            if over:
                return 0
            time.sleep(args.every)
    except KeyboardInterrupt:
        return 0


def _check(seconds: float):
    from hpcgcn.errors import ConfigError
    if not 0.1 <= seconds <= 3600:
        raise ConfigError(f"--every {seconds:g}: expected 0.1 to 3600 seconds")


def _look(path: str) -> str:
    import shutil

    from hpcgcn.report.watch import frame
    plain = not (sys.stdout.encoding or "").lower().replace("-", "").startswith("utf")
    return frame(path, min(shutil.get_terminal_size().columns, 120), plain)
