"""Which files of ours a writer may replace: known by what their headers say."""

from __future__ import annotations

from hpcgcn.errors import FileError
from hpcgcn.files.replace import Replaces
from hpcgcn.graph.header import header


def own_h5(kind: str, remedy: str = "give another name", **facts) -> Replaces:
    """HDF5 files of ours of one kind, whose headers have all of these facts."""
    def fits(path: str) -> bool:
        held, expected = facts_of(path), {"kind": kind, **facts}
        return expected == {name: held.get(name) for name in expected}
    what = f"a {kind} file of the same origin" if facts else f"a {kind} file"
    return Replaces(what, fits, remedy)


def any_but_ours(what: str) -> Replaces:
    """For formats of others, if the user wants a file replaced: all but HDF5 files of hpcgcn."""
    return Replaces(what, lambda path: not facts_of(path), recognises=False)


def facts_of(path: str) -> dict:
    """The header of an HDF5 file of ours; empty if it is none."""
    try:
        return header(path)
    except FileError:
        return {}
