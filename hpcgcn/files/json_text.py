"""JSON from a file that anybody may have written."""

from __future__ import annotations

import json

MOST_LEVELS = 20


class Unfit(ValueError):
    """A value of another type than expected; the message says what it is."""


def parse_json(text: str):
    """A JSON value of bounded depth that can be shown and written anywhere; Unfit if it is none."""
    try:
        value = json.loads(text)
        json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise Unfit("JSON that is nested too deeply") from None
    except ValueError as error:
        raise Unfit(f"no JSON ({error})"[:200]) from None
    level = [value]
    for _ in range(MOST_LEVELS):
        level = [inner for outer in level if isinstance(outer, (dict, list))
                 for inner in (outer.values() if isinstance(outer, dict) else outer)]
    if level:
        raise Unfit("JSON that is nested too deeply")
    return value
