"""The command line: one file per subcommand, imported only when it is called or its help is asked
for."""

from __future__ import annotations

import argparse
import difflib
import importlib
import io
import keyword
import sys
import time

from hpcgcn.errors import LAUNCHER_SECONDS
from hpcgcn.mpi.launcher import launched_rank

COMMANDS = {
    "generate": "generate a synthetic graph",
    "import": "import a graph that another program wrote",
    "export": "write a graph in a format that other programs read",
    "weights": "export weights to PyG and DGL, or import theirs",
    "partition": "divide a graph into one part per rank",
    "info": "what a file or run holds, and whether it is sound",
    "train": "train a model on all ranks of this MPI job",
    "evaluate": "exact scores of a trained model",
    "predict": "classes, logits or embeddings of every node",
    "report": "compare runs in one HTML page that opens offline",
    "trace": "the timeline of a run, for Perfetto and chrome://tracing",
    "profile": "where the time of a run's epochs went, per layer and operation",
    "watch": "the curves of a run while it trains",
    "run": "a table of runs with their settings and results",
    "methods": "the published methods and the settings they stand for",
    "config": "all settings with their defaults and meaning; or check a file of them",
    "configs": "settings that others published: list them, copy one",
    "completion": "completion of commands and flags for bash and zsh",
    "doctor": "what this machine offers, and whether training can run",
}


# A launcher ends the job at the first rank that exits with an error, so the others leave rank 0 the
# time to start and speak.
SPEAKER_SECONDS = 10.0


class _Parser(argparse.ArgumentParser):
    """One line about the error and how to go on, exit code 2; said by one rank only."""

    def error(self, message):
        rank = launched_rank()
        if rank not in (None, "0"):
            time.sleep(SPEAKER_SECONDS)
            self.exit(2)
        print(f"hpcgcn: {message} (see {self.prog} --help)", file=sys.stderr, flush=True)
        if rank is not None:
            time.sleep(LAUNCHER_SECONDS)
        self.exit(2)

    def unknown(self, given: list[str]):
        """Name the flag nearest to the first one that does not exist."""
        flags = [f for action in self._actions for f in action.option_strings]
        near = difflib.get_close_matches(given[0].split("=")[0], flags, n=1)
        self.error(f"unknown argument '{given[0]}'"
                   + (f": did you mean {near[0]}?" if near else ""))


def main(argv: list[str] | None = None) -> int:
    """Entry point of `hpcgcn` and `python -m hpcgcn`; returns the exit code."""
    from hpcgcn import __version__
    from hpcgcn.logs import show_messages
    if argv is None:                     # the process is this command's alone
        from hpcgcn.files.tidy import end_on_interrupt
        end_on_interrupt()
        argv = sys.argv[1:]
    _print_anything()
    parser = _Parser(prog="hpcgcn", description="Full-graph GCN training over MPI.",
                     allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"hpcgcn {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True,
                                     parser_class=_Parser)
    command = next((a for a in argv if not a.startswith("-")), None)
    chosen = parser
    for name, text in COMMANDS.items():
        sub = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        if name == command:
            chosen = sub
            _module(name).add_arguments(sub)
    args, rest = parser.parse_known_args(argv)
    if rest:
        chosen.unknown(rest)
    show_messages()
    return _run(_module(args.command), args)


def command_parser(name: str) -> argparse.ArgumentParser:
    """The parser of one command, for documents and completion."""
    parser = _Parser(prog=f"hpcgcn {name}", description=COMMANDS[name], allow_abbrev=False)
    _module(name).add_arguments(parser)
    return parser


def _print_anything():
    """Names of files and classes may hold what the locale cannot show: then it is escaped. Where
    nothing can be shown, as the stream is closed, nothing is."""
    from hpcgcn.logs import discard
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            discard(name)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _module(name: str):
    """The file of a subcommand; a name that Python keeps for itself has an underscore after it."""
    return importlib.import_module(f"hpcgcn.cli.{name}{'_' if keyword.iskeyword(name) else ''}")


def _run(command, args) -> int:
    from hpcgcn.errors import HpcgcnError
    from hpcgcn.logs import discard
    try:
        code = command.run(args) or 0
        sys.stdout.flush()               # here, and not at the exit, where nobody could catch it
        return code
    except HpcgcnError as error:
        print(f"hpcgcn: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    except BrokenPipeError:
        discard("stdout")
        return 0
    except OSError as error:
        if _output_works():
            raise
        discard("stdout")
        print(f"hpcgcn: stdout cannot be written: {error.strerror}", file=sys.stderr, flush=True)
        return 2
    except KeyboardInterrupt:
        return 130


def _output_works() -> bool:
    """Can an empty line be printed?"""
    try:
        print(flush=True)
    except OSError:
        return False
    return True
