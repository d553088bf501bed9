"""Numbers on the command line, with bounds."""

from __future__ import annotations

import argparse
import re
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


_UNITS = {"": 1, **{f"{letter}{kind}B": base ** power
                    for power, letter in enumerate("KMGT", 1)
                    for kind, base in (("", 1000), ("i", 1024))}}


def size(text: str) -> int:
    """A number of bytes such as 12GiB, 500MB or 1000000, for argparse."""
    parsed = re.fullmatch(r"(\d{1,15}(?:\.\d{1,6})?) ?([KMGT]i?B|)", text.strip())
    if not parsed or not float(parsed[1]):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no size: write a number and a unit, "
                                         "such as 12GiB")
    return int(float(parsed[1]) * _UNITS[parsed[2]])


seed = whole(0, LARGEST_SEED)
