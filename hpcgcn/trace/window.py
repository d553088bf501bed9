"""Which epochs a trace is of, as the setting `trace` says."""

from __future__ import annotations

import re

from hpcgcn.trace.recorder import NullTrace, Trace

ALONE = "last:4"                     # what --trace means without a value
MOST_EPOCHS = 1000
_FOREVER = 1 << 62


def read_window(text: str) -> tuple[int, int, int] | None:
    """(first epoch, last epoch, how many of the newest are kept); None: no trace.

    ValueError says what is expected.
    """
    if text == "none":
        return None
    single = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", text)
    newest = re.fullmatch(r"last:(\d{1,9})", text)
    if single:
        first, last = int(single[1]), int(single[2] or single[1])
    elif newest:
        first, last = 1, int(newest[1])
    else:
        raise ValueError("expected none, an epoch (7), epochs (5-8), or last:4 for the newest four")
    n_kept = last - first + 1
    if not first or not 1 <= n_kept <= MOST_EPOCHS:
        raise ValueError(f"expected 1 to {MOST_EPOCHS} epochs; they count from 1")
    return (first, _FOREVER if newest else last, n_kept)


def make_trace(text: str) -> NullTrace:
    """The recorder that the setting means."""
    window = read_window(text)
    return Trace(*window) if window else NullTrace()
