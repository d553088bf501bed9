"""Where ranks outnumber cores, a rank that waits sleeps, so that one with work gets the core."""

from __future__ import annotations

import functools
import os
import pathlib
import shutil
import subprocess
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parents[1] / "benchmarks" / "idle_sleep.c"


@functools.cache
def _library() -> str | None:
    """The preloaded library, built once for this process; None without a C compiler."""
    compiler = shutil.which("cc")
    if not compiler:
        return None
    target = os.path.join(tempfile.mkdtemp(prefix="hpcgcn-idle-"), "idle_sleep.so")
    built = subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", target, SOURCE],
                           capture_output=True)
    return target if built.returncode == 0 else None


def patient_environment(n_ranks: int) -> dict[str, str]:
    """What to add to the environment of a job of n ranks."""
    library = _library() if n_ranks > len(os.sched_getaffinity(0)) else None
    return {"LD_PRELOAD": library} if library else {}
