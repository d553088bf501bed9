"""The folder of a job's heartbeat files: made by rank 0, removed with the job or by a later one."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets

from hpcgcn.files.alive import machine, try_lock

PREFIX = ".heartbeat-"
SIGN = "job"                         # file that rank 0 has locked for as long as it lives
STALE_SECONDS = 3600.0               # without a beat, for a job of another machine to count as dead


def make_folder(output: str) -> tuple[str, int | None]:
    """(a new folder in `output`, the file that says that its job lives); ("", None) without place.

    Folders of jobs that were killed are removed.
    """
    folder = os.path.join(output, f"{PREFIX}{_machine_code()}-{secrets.token_hex(4)}")
    try:
        os.makedirs(folder)
        sign = _make_sign(folder)
        now = os.path.getmtime(folder)       # by the clock of the file system
        for entry in os.scandir(output):
            if entry.name.startswith(PREFIX) and _is_dead(entry.path, now):
                remove_beats(entry.path)
        return folder, sign
    except OSError:
        return "", None              # the run's folder will be refused, with the reason


def leave_folder(folder: str, own: str, sign: int | None):
    """Remove a rank's own file; the last rank removes the folder.

    If others die before they can, rank 0's sign is there without a lock: a later job tidies up.
    """
    with contextlib.suppress(OSError):
        os.remove(own)
    if sign is not None:
        os.close(sign)
    with contextlib.suppress(OSError):
        if set(os.listdir(folder)) <= {SIGN}:
            remove_beats(folder)


def remove_beats(folder: str):
    """The files of a job and, if nothing else is there, the folder."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if re.fullmatch(rf"rank-\d+|\.?{SIGN}", name):
                os.remove(os.path.join(folder, name))
        os.rmdir(folder)


def _machine_code() -> str:
    return hashlib.sha256(machine().encode()).hexdigest()[:8]


def _make_sign(folder: str) -> int:
    """Locked before it has its name: nobody sees it free while its job lives."""
    hidden = os.path.join(folder, f".{SIGN}")
    file = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
    if try_lock(file):
        os.rename(hidden, os.path.join(folder, SIGN))
    return file


def _is_dead(folder: str, now: float) -> bool:
    with contextlib.suppress(OSError):
        if os.path.basename(folder).startswith(f"{PREFIX}{_machine_code()}-"):
            file = os.open(os.path.join(folder, SIGN), os.O_RDWR | os.O_NOFOLLOW)
            try:
                return try_lock(file) is True
            finally:
                os.close(file)
    with contextlib.suppress(OSError):
        beats = [entry.stat().st_mtime for entry in os.scandir(folder)]
        return now - max([os.path.getmtime(folder), *beats]) > STALE_SECONDS
    return False
