"""The timeline of two epochs of all ranks, for runs that were traced: data for timeline.js.

Times are whole tenths of a microsecond since the first of the two epochs began.
"""

from __future__ import annotations

import json
from html import escape
from typing import NamedTuple

from hpcgcn.errors import FileError
from hpcgcn.report.runs import Run
from hpcgcn.timeline.read import Flight, RankTimeline, Timeline, has_trace, read_timeline
from hpcgcn.trace.recorder import KINDS

N_EPOCHS = 2
MOST_SPANS = 150_000                 # of a run; with more only one epoch is drawn
MOST_LANES = 6                       # of messages in flight, per rank
KIND_NAMES = list(KINDS)


class Drawn(NamedTuple):
    """A run with its timeline."""

    number: int                      # of the run, in the order given
    run: Run
    timeline: Timeline
    epochs: list[int]                # that are drawn


def timelines(runs: list[Run]) -> list[Drawn]:
    """Of the runs that have one; one that is damaged becomes a note of the run."""
    drawn = []
    for number, run in enumerate(runs):
        if not has_trace(run.path):
            continue
        try:
            timeline = read_timeline(run.path)
        except FileError as error:
            run.notes.append(str(error))
            continue
        epochs = timeline.epochs()[-N_EPOCHS:]
        while len(epochs) > 1 and _n_spans(timeline, epochs) > MOST_SPANS:
            epochs = epochs[1:]
        if epochs:
            drawn.append(Drawn(number, run, timeline, epochs))
    return drawn


def _n_spans(timeline: Timeline, epochs: list[int]) -> int:
    start, stop = _ends(timeline, epochs)
    return sum(start <= span.stop and span.start <= stop
               for rank in timeline.ranks for span in rank.spans)


def _ends(timeline: Timeline, epochs: list[int]) -> tuple[float, float]:
    """When the first of these epochs begins on any rank, and the last one ends."""
    phases = [phase for rank in timeline.ranks for phase in rank.epochs()
              if phase.epoch in epochs]
    return min(phase.start for phase in phases), max(phase.stop for phase in phases)


def section(drawn: list[Drawn]) -> str:
    """What timeline.js draws on: a canvas per run, keys, buttons, the data."""
    kinds = {kind for one in drawn for rank in one.timeline.ranks
             for kind in {span.activity.kind for span in rank.spans}}
    keys = "".join(f'<span class="key"><i class="box t-{kind}"></i>{escape(KINDS[kind])}</span>'
                   for kind in KIND_NAMES if kind in kinds)
    keys += ('<span class="key"><i class="box t-hidden"></i>in flight, hidden</span>'
             '<span class="key"><i class="box t-waited"></i>in flight, waited for</span>')
    buttons = "".join(f'<button type="button" data-do="{name}" title="{title}">{text}</button>'
                      for name, text, title in (("in", "+", "zoom in"), ("out", "−", "zoom out"),
                                                ("fit", "fit", "show all"),
                                                ("messages", "messages", "show every message")))
    return (f'<p class="keys">{keys}</p><div class="timelines"><div class="tools">{buttons}</div>'
            f'{"".join(map(_figure, drawn))}</div>')


def _figure(one: Drawn) -> str:
    epochs = " and ".join(map(str, one.epochs))
    hidden = 100 * one.timeline.hidden_share(one.epochs)
    text = json.dumps(_data(one), separators=(",", ":")).replace("<", "\\u003c")
    return (f'<figure class="run r{one.number}" data-run="{one.number}">'
            f'<figcaption><b>{escape(one.run.label)}</b> epochs {epochs}; '
            f'{hidden:.1f} % of the time that messages are in flight is hidden</figcaption>'
            f'<canvas class="timeline" tabindex="0" role="img" aria-label="Timeline of '
            f'{escape(one.run.label, quote=True)}"></canvas>'
            f'<script type="application/json">{text}</script></figure>')


def _data(one: Drawn) -> dict:
    start, stop = _ends(one.timeline, one.epochs)

    def tenths(moment: float) -> int:
        return round(1e7 * (moment - start))
    return {"kinds": KIND_NAMES, "names": list(KINDS.values()), "stop": tenths(stop),
            "ranks": [_rank(rank, one.epochs, start, stop, tenths)
                      for rank in one.timeline.ranks],
            "messages": [[m.sender, m.receiver, tenths(m.sent), tenths(m.arrived), m.n_bytes,
                          m.activity.hop, m.activity.direction]
                         for m in one.timeline.messages
                         if m.arrived is not None and m.arrived >= start and m.sent <= stop]}


def _rank(rank: RankTimeline, epochs: list[int], start: float, stop: float, tenths) -> dict:
    inside = [phase for phase in rank.epochs() if phase.epoch in epochs]
    spans = [[tenths(span.start), tenths(span.stop), KIND_NAMES.index(span.activity.kind),
              span.activity.hop, span.activity.direction]
             for span in rank.spans if start <= span.stop and span.start <= stop]
    flights = [flight for flight in rank.flights
               if any(phase.holds(flight.stop) for phase in inside)]
    lanes = _lanes(flights)
    return {"name": f"rank {rank.rank}", "host": rank.host, "spans": spans,
            "lanes": max(lanes, default=-1) + 1,
            "flights": [[tenths(flight.start), tenths(flight.waited), tenths(flight.stop), lane,
                         flight.activity.hop, flight.activity.direction]
                        for flight, lane in zip(flights, lanes)],
            "epochs": [[phase.epoch, tenths(phase.start), tenths(phase.stop)] for phase in inside]}


def _lanes(flights: list[Flight]) -> list[int]:
    """For each a lane in which nothing else is in flight, as long as there are lanes."""
    free_from: list[float] = []
    lanes = [0] * len(flights)
    for k in sorted(range(len(flights)), key=lambda k: flights[k].start):
        lane = next((lane for lane, moment in enumerate(free_from)
                     if moment <= flights[k].start), None)
        if lane is None:
            lane = min(len(free_from), MOST_LANES - 1)
        if lane == len(free_from):
            free_from.append(0.0)
        free_from[lane], lanes[k] = max(free_from[lane], flights[k].stop), lane
    return lanes
