"""The command line: one file a subcommand, imported only when it is called or its help is asked for."""

from __future__ import annotations

import argparse
import importlib
import sys

COMMANDS = {
    "generate": "make a graph to try things on",
    "partition": "cut a graph into one part a rank",
    "info": "what a file is and holds, and whether it is sound",
    "train": "train a model on all ranks of this MPI job",
    "evaluate": "exact scores of a trained model",
    "predict": "classes, logits or embeddings of every node",
    "methods": "the published methods and the settings they stand for",
    "config": "all settings with their defaults and meaning",
    "doctor": "what this machine offers, and whether training can run",
}


class _Parser(argparse.ArgumentParser):
    """One line about the mistake and how to go on, exit code 2."""

    def error(self, message):
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def main(argv: list[str] | None = None) -> int:
    """Entry point of `hpcgcn` and `python -m hpcgcn`; returns the exit code."""
    from hpcgcn import __version__
    argv = sys.argv[1:] if argv is None else argv
    parser = _Parser(prog="hpcgcn", description="Full-graph GCN training over MPI.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"hpcgcn {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_Parser)
    wanted = next((a for a in argv if not a.startswith("-")), None)
    for name, text in COMMANDS.items():
        sub = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        if name == wanted:
            importlib.import_module(f"hpcgcn.cli.{name}").add_arguments(sub)
    args = parser.parse_args(argv)
    return _run(importlib.import_module(f"hpcgcn.cli.{args.command}"), args)


def _run(command, args) -> int:
    from hpcgcn.errors import HpcgcnError
    try:
        return command.run(args) or 0
    except HpcgcnError as error:
        print(f"hpcgcn: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    except BrokenPipeError:
        return 0
    except KeyboardInterrupt:
        return 130
