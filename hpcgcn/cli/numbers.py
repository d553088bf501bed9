"""Numbers on the command line, with bounds."""

from __future__ import annotations

import argparse
from collections.abc import Callable

LARGEST_SEED = 2 ** 63 - 1


def whole(low: int, high: int) -> Callable[[str], int]:
    """A type for argparse: whole numbers from low to high."""
    def parse(text: str) -> int:
        """The number, or what argparse says is wrong with it."""
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a whole number") from None
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text[:40]} is not between {low} and {high}")
        return value
    return parse


seed = whole(0, LARGEST_SEED)
