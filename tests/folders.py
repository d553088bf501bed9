"""What is in a folder, byte by byte, to compare before and after."""

from __future__ import annotations

import os
import stat


def contents(folder) -> dict[str, tuple]:
    """{relative path: (kind, what it holds)} of everything in a folder; links are not followed."""
    found = {}
    for base, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            path = os.path.join(base, name)
            found[os.path.relpath(path, folder)] = _state(path)
    return found


def _state(path: str) -> tuple:
    mode = os.lstat(path).st_mode
    if stat.S_ISLNK(mode):
        return "link", os.readlink(path)
    if stat.S_ISREG(mode):
        with open(path, "rb") as file:
            return "file", file.read()
    return ("folder" if stat.S_ISDIR(mode) else "special"), stat.S_IFMT(mode)
