"""What all commands that write a file share."""

from __future__ import annotations

import argparse
import dataclasses


def add_overwrite(parser: argparse.ArgumentParser, what: str):
    """The flag with which a user allows an existing file to be replaced."""
    parser.add_argument("--overwrite", action="store_true",
                        help=f"replace the output if it is {what} (default: refuse)")


def show(text: str):
    """Print the result of a command that runs on ranks; a reader who has gone away is no error."""
    from hpcgcn.errors import FileError
    from hpcgcn.logs import discard
    try:
        print(text, flush=True)
    except BrokenPipeError:
        discard("stdout")
    except OSError as error:
        discard("stdout")
        raise FileError(f"stdout cannot be written: {error.strerror}") from None


def foreign(overwrite: bool):
    """What may be replaced by a file in a format of others, which does not tell whose it is."""
    from hpcgcn.files.replace import NOTHING, REMEDY
    from hpcgcn.graph.replaceable import any_but_ours
    if overwrite:
        return any_but_ours("a file that can be replaced")
    return dataclasses.replace(NOTHING, remedy=REMEDY)


def same_graph(overwrite: bool, settings: dict):
    """What a graph file may replace: one that was made with the same settings."""
    import json

    from hpcgcn.files.replace import REMEDY, Replaces
    from hpcgcn.graph.replaceable import facts_of, own_h5
    if overwrite:
        return own_h5("graph")
    expected = json.loads(json.dumps(settings))

    def fits(path: str) -> bool:
        facts = facts_of(path)
        held = facts.get("settings") if facts.get("kind") == "graph" else None
        return isinstance(held, dict) and expected == {name: held.get(name) for name in expected}
    return Replaces("a graph file made with the same settings", fits, REMEDY)
