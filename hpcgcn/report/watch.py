"""A run as lines for a terminal: curves, rate, time that is left, and how busy its ranks are."""

from __future__ import annotations

import os
import time

from hpcgcn.files.json_text import Unfit, parse_json
from hpcgcn.report.curves import thinned
from hpcgcn.report.runs import Run, is_number, read_run
from hpcgcn.train.folder import LIVE
from hpcgcn.train.progress import RECENT, in_words

HEIGHT = 8                           # of a curve, in lines
MOST_RANKS = 16                      # that have a line of their own
SILENT_SECONDS = 60.0
_MOST_BYTES = 16 << 20
_BRAILLE = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))      # dots of a character


def frame(path: str, width: int = 80, plain: bool = False) -> str:
    """What can be said of a run now; plain: without characters beyond ASCII."""
    run, live = read_run(path), _read_live(path)
    width = max(width, 40)
    parts = [_head(run, live)]
    for name, title, percent in (("loss", "training loss", False),
                                 ("val", "validation score", True)):
        points = [(epoch, 100 * value if percent else value)
                  for epoch, value in zip(run.column("epoch"), run.column(name))
                  if value is not None]
        if points:
            parts.append(_curve(title, points, width, plain))
    ranks = _ranks(live, width)
    if ranks:
        parts.append(ranks)
    return "\n\n".join(parts)


def is_over(path: str) -> bool:
    """Has the run ended, well or early?"""
    return os.path.isfile(os.path.join(path, "summary.json"))


def _read_live(path: str) -> dict:
    """live.json; nothing if there is none, or it is damaged."""
    name = os.path.join(path, LIVE)
    try:
        if os.path.isfile(name) and os.path.getsize(name) <= _MOST_BYTES:
            with open(name, encoding="utf-8") as file:
                content = parse_json(file.read())
            return content if isinstance(content, dict) else {}
    except (OSError, Unfit, UnicodeDecodeError):
        pass
    return {}


def _head(run: Run, live: dict) -> str:
    config, done = run.config, run.n_epochs
    told = config.get("epochs")
    n_epochs = told if isinstance(told, int) else done
    recent = [seconds for seconds in run.column("seconds")[-RECENT:] if seconds]
    pace = sum(recent) / len(recent) if recent else 0.0
    lines = [f"{run.path}: {config.get('method', '?')}, {config.get('model', '?')}",
             f"epoch {done}/{n_epochs}" + (f", {1000 * pace:.1f} ms/epoch" if pace else "")]
    if is_over(run.path):
        stopped = (run.summary or {}).get("stopped_early") is True
        lines[-1] += ", stopped early" if stopped else ", finished"
    elif pace and done < n_epochs:
        lines[-1] += f", ETA {in_words(pace * (n_epochs - done))}"
        written = live.get("written_at")
        silent = time.time() - float(written) if written and is_number(written) else 0.0
        if silent > max(SILENT_SECONDS, 10 * pace):
            lines.append(f"nothing has been written for {in_words(silent)}")
    best = run.best()
    if best and best[2] is not None:
        lines.append(f"best so far: test {100 * best[2]:.2f} % at epoch {best[0]:.0f}")
    return "\n".join(lines)


def _curve(title: str, points: list[tuple[float, float]], width: int, plain: bool) -> str:
    columns, rows = width - 11, HEIGHT
    low, high = min(y for _, y in points), max(y for _, y in points)
    first, last = points[0][0], points[-1][0]
    across, down = (1, 1) if plain else (2, 4)
    dots = set()
    for x, y in thinned(points, 4 * columns):
        column = (x - first) / ((last - first) or 1.0) * (columns * across - 1)
        row = (high - y) / ((high - low) or 1.0) * (rows * down - 1)
        dots.add((round(row), round(column)))
    lines = []
    for row in range(rows):
        text = "".join(_character(dots, row, column, plain) for column in range(columns))
        label = high if row == 0 else low if row == rows - 1 else None
        lines.append(f"{'' if label is None else format(label, '.4g'):>9} |{text.rstrip()}"
                     if not plain or text.strip() else f"{'':>9} |")
    lines.append(f"{'':>9} +{'-' * (columns - 1)}\n{'':>11}epoch {first:.0f} to {last:.0f}")
    return title + "\n" + "\n".join(lines)


def _character(dots: set, row: int, column: int, plain: bool) -> str:
    if plain:
        return "*" if (row, column) in dots else " "
    bits = sum(bit for down, pair in enumerate(_BRAILLE) for across, bit in enumerate(pair)
               if (4 * row + down, 2 * column + across) in dots)
    return chr(0x2800 + bits) if bits else " "


def _ranks(live: dict, width: int) -> str:
    ranks = live.get("ranks")
    shares: list[tuple[int, float, float, float]] = []
    for number, rank in enumerate(ranks if isinstance(ranks, list) else []):
        values = [rank.get(name) if isinstance(rank, dict) else None
                  for name in ("busy", "moves", "waits")]
        if all(map(is_number, values)):
            busy, moves, waits = (min(max(float(value), 0.0), 1.0) for value in values if value
                                  is not None)
            shares.append((number, busy, moves, waits))
    if not shares:
        return ""
    bar = max(width - 40, 10)
    shown = shares
    if len(shares) > MOST_RANKS:                 # the busiest and the idlest: who waits for whom
        order = sorted(shares, key=lambda row: row[1])
        shown = order[:MOST_RANKS // 2] + order[-MOST_RANKS // 2:]
    lines = ["ranks: # computes, = packs and unpacks, . waits"]
    for number, busy, moves, waits in shown:
        computes, packs = round(busy * bar), round(moves * bar)
        rest = max(bar - computes - packs, 0)
        lines.append(f"{'rank ' + str(number):>9} |{'#' * computes}{'=' * packs}{'.' * rest}| "
                     f"{100 * busy:3.0f} % busy, {100 * waits:3.0f} % waits")
    if len(shares) > len(shown):
        lines.append(f"{'':>11}and {len(shares) - len(shown)} ranks in between")
    return "\n".join(lines)
