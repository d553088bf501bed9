"""Files for others appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator

from hpcgcn.errors import FileError


@contextlib.contextmanager
def atomic_file(path: str | os.PathLike) -> Iterator[str]:
    """A temporary name, of the same ending, that becomes `path` when the block ends."""
    path = os.fspath(path)
    if os.path.isdir(path):
        raise FileError(f"cannot write {path}: it is a folder; give a file name")
    with _renamed(path) as temporary:
        yield temporary


@contextlib.contextmanager
def atomic_folder(path: str | os.PathLike) -> Iterator[str]:
    """A new folder that becomes `path` when the block ends; one that is there already is left alone."""
    path = os.path.normpath(os.fspath(path))
    if os.path.exists(path):
        raise FileError(f"cannot write {path}: it is there already; give the name of a new folder")
    with _renamed(path) as temporary:
        os.mkdir(temporary)
        yield temporary


@contextlib.contextmanager
def _renamed(path: str) -> Iterator[str]:
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{secrets.token_hex(4)}-{name}")
    try:
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        raise FileError(f"cannot write {path}: {error.strerror or error}; check the folder, free space and permissions") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True) if os.path.isdir(temporary) else None
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
