"""What the tests of both labs share: when to skip, and who of a lab is still there."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path

import pytest

JOBS = Path(__file__).resolve().parents[2] / "jobs"


def need(*tools: str):
    """Skip the calling module unless it runs as root on Linux with these commands."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        pytest.skip("needs root on Linux", allow_module_level=True)
    missing = [tool for tool in tools
               if not shutil.which(tool, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")]
    if missing:
        pytest.skip(f"no {', '.join(missing)}: make cluster-deps installs it",
                    allow_module_level=True)


def processes_with(mark: str) -> list[int]:
    """Processes with this text in their command line, zombies and this one excepted."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if mark.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def wait_until(condition, what: str, seconds: float = 60):
    """Fail if a condition has not come true in time."""
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, f"waited {seconds} s in vain for: {what}"
        time.sleep(0.1)
