"""One setting of the exchanges, with other values at some hops or in one direction.

    1                        everywhere
    1,narrow=0               0 at the hops at which h W is sent
    1bit,last=fp32           another codec at the last hop
    features=0.95            features only; gradients keep the default
    1,gradients.2=0          one direction of one hop

A bare value comes first and is for all; each `selector=value` replaces what stands before it. No
heavy imports: settings are checked with this.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

DIRECTIONS = {"features": "forward", "gradients": "backward"}
PLACES = ("last", "narrow", "wide")
SYNTAX = ("VALUE[,SELECTOR=VALUE...]; a selector is features, gradients, a hop's number, last, "
          "narrow (h W is sent) or wide, or both with a dot: features.last")
# Values may hold commas themselves (rate = 'step:1@0,4@50'): no value holds `word=`.
_NEXT = re.compile(r",(?=\s*[\w.-]*\s*=)")


@dataclass(frozen=True)
class HopFacts:
    """What settings can ask of a hop; `rows` are those sent each way, over all ranks."""

    number: int
    width: int
    rows: int = 0
    narrow: bool = False             # h W is sent: a weight is in the messages
    gradients: bool = True           # does it carry gradients back?
    last: bool = False


@dataclass(frozen=True)
class Selector:
    """Which exchanges an entry is for; without direction and place: all."""

    direction: str = ""              # "forward", "backward", or both
    place: str = ""                  # last, narrow, wide, or a hop's number

    def matches(self, hop: HopFacts, direction: str) -> bool:
        """Is the entry for this hop and direction?"""
        if self.direction not in ("", direction):
            return False
        held = {"": True, "last": hop.last, "narrow": hop.narrow, "wide": not hop.narrow}
        return held[self.place] if self.place in held else int(self.place) == hop.number


@dataclass(frozen=True)
class PerHop:
    """The values of one setting, in the order in which they were written."""

    entries: tuple[tuple[Selector, Any], ...]

    @property
    def base(self):
        """The value where nothing else is said."""
        return self.entries[0][1]

    def values(self, direction: str = "") -> list:
        """All values that some exchange of this direction (default: of any) could have."""
        values: list = []
        for selector, value in self.entries:
            if not direction or selector.direction in ("", direction):
                # What stands for a whole direction replaces all before it.
                values = [value] if direction and not selector.place else [*values, value]
        return values

    def at(self, hop: HopFacts, direction: str):
        """The value of a hop and direction."""
        return self.entry(hop, direction)[1]

    def entry(self, hop: HopFacts, direction: str) -> tuple[Selector, Any]:
        """The entry that decides, with its selector."""
        return [entry for entry in self.entries if entry[0].matches(hop, direction)][-1]

    def numbers(self) -> list[int]:
        """Hops that are named by their number."""
        return [int(selector.place) for selector, _ in self.entries if selector.place.isdigit()]


def parse(text: str, value_of: Callable[[str], Any], default) -> PerHop:
    """The setting written as text; ValueError with the reason if it is none.

    value_of: from the text of one value, raises ValueError. default: where nothing is said.
    """
    entries = [(Selector(), default)]
    for position, part in enumerate(_NEXT.split(text)):
        name, equals, value = part.rpartition("=")
        name, value = name.strip(), value.strip()
        if not equals:
            entries = [(Selector(), value_of(value))]
            continue
        if "=" in name:
            raise ValueError(f"'{_short(part)}' has more than one =")
        if not value:
            raise ValueError(f"'{_short(part)}' gives no value behind the =" if position or name
                             else "a selector and a value are missing around the =")
        entries.append((parse_selector(name), value_of(value)))
    return PerHop(tuple(entries))


def parse_selector(text: str) -> Selector:
    """A direction, a place, or both with a dot between them."""
    parts = text.lower().split(".")
    direction = DIRECTIONS.get(parts[0], "")
    place = parts[1] if direction and len(parts) == 2 else parts[0] if not direction else ""
    whole = len(parts) == (2 if direction and place else 1)
    if not whole or not (place in PLACES or _is_number(place) or (direction and len(parts) == 1)):
        near = difflib.get_close_matches(parts[-1][:40], [*DIRECTIONS, *PLACES], n=1)
        hint = f" (did you mean '{near[0]}'?)" if near and near[0] != parts[-1] else ""
        raise ValueError(f"'{_short(text)}' is no selector{hint}: write features, gradients, a "
                         f"hop's number, last, narrow or wide, or features.last")
    return Selector(direction, place)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and 0 < len(text) < 7 and int(text) > 0


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."


def one_of(*choices: str) -> Callable[[str], str]:
    """A reader of values: one of these words."""
    def value_of(text: str) -> str:
        if text not in choices:
            near = difflib.get_close_matches(text[:40], choices, n=1)
            hint = f" (did you mean '{near[0]}'?)" if near else ""
            raise ValueError(f"'{_short(text)}': choose one of {', '.join(choices)}{hint}")
        return text
    return value_of


def whole_number(low: int = 0, high: int = 2 ** 31 - 1) -> Callable[[str], int]:
    """A reader of values: an integer within bounds."""
    def value_of(text: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
            raise ValueError(f"'{_short(text)}' is not a whole number")
        return _bounded(int(text), low, high, text)
    return value_of


def number(low: float = 0.0, below: float = math.inf, infinite: bool = False):
    """A reader of values: a number of at least `low`, less than `below`."""
    def value_of(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise ValueError(f"'{_short(text)}' is not a number") from None
        if infinite and value == math.inf:
            return value
        if not math.isfinite(value):
            raise ValueError(f"'{_short(text)}' is not a finite number")
        if value >= below:
            raise ValueError(f"'{_short(text)}' must be less than {below:g}")
        return _bounded(value, low, math.inf, text)
    return value_of


def _bounded(value, low, high, text: str):
    if not low <= value <= high:
        wrong = f"at least {low}" if value < low else f"at most {high}"
        raise ValueError(f"'{_short(text)}' must be {wrong}")
    return value
