"""Temporary files and folders: gone when their block ends, and when a signal ends the process."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import threading
from collections.abc import Iterator
from typing import Any

# The signals that remove temporary files, and what is done about them otherwise.
_handlers: dict[int, Any] = {signal.SIGTERM: signal.SIG_DFL, signal.SIGHUP: signal.SIG_DFL}
_PREFIX = ".hpcgcn-"
_names: set[str] = set()             # temporary files and folders of this process
_handled: list[int] = []             # signals whose default action waits until they are removed


def end_on_interrupt():
    """From now on Ctrl-C ends this process as SIGTERM does, while there is a temporary file.

    For programs. Elsewhere it raises KeyboardInterrupt, as people expect of a library, although
    HDF5 may lose that.
    """
    _handlers[signal.SIGINT] = signal.default_int_handler


def is_temporary(name: str) -> bool:
    """Does a file have the name of a temporary one, which a killed process may have left behind?"""
    middle = name.removeprefix(_PREFIX).split(".")[0]
    return name.startswith(_PREFIX) and len(middle) == 16 and set(middle) <= set("0123456789abcdef")


@contextlib.contextmanager
def temporary_beside(path: str, ending: str = "") -> Iterator[str]:
    """A new name beside `path`, that nobody can guess; what is there in the end is removed."""
    folder = os.path.dirname(os.path.abspath(path))
    name = os.path.join(folder, f"{_PREFIX}{secrets.token_hex(8)}.tmp{ending}")
    _remember(name)
    try:
        yield name
    finally:
        remove(name)
        _forget(name)


@contextlib.contextmanager
def temporary_folder(parent: str) -> Iterator[str]:
    """A new folder in `parent`, removed with all that is in it."""
    with temporary_beside(os.path.join(parent, "x")) as path:
        os.mkdir(path)
        yield path


def remove(path: str):
    """Remove what this process has made at `path`, if there is anything."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def remove_temporaries(folder: str):
    """Remove the temporary files that a killed process left in a folder of ours."""
    for name in filter(is_temporary, os.listdir(folder)):
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(folder, name))


def _remember(name: str):
    _names.add(name)
    if threading.current_thread() is threading.main_thread():
        for number, usual in _handlers.items():
            # A job that answers signals itself, or ignores them, keeps its way.
            if signal.getsignal(number) is usual:
                signal.signal(number, _remove_all_and_end)
                _handled.append(number)


def _forget(name: str):
    _names.discard(name)
    if not _names and threading.current_thread() is threading.main_thread():
        while _handled:
            number = _handled.pop()
            signal.signal(number, _handlers[number])


def _remove_all_and_end(number: int, _frame):
    """No exception: libraries in C, through which it would have to pass, may lose it."""
    for name in list(_names):
        with contextlib.suppress(OSError):
            remove(name)
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
