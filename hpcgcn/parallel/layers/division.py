"""Where a model can be cut into stages, what crosses a cut, and which cuts balance the stages.

A model is one line of items: steps, with hops between them. A cut lies before a hop, or a few steps
earlier where less is alive: a model with residual blocks is cut before the norm, where only its
running sum is, and not after it, where the normalised rows are too.
"""

from __future__ import annotations

from dataclasses import dataclass

from hpcgcn.errors import ConfigError
from hpcgcn.nn.fields import Array, Field
from hpcgcn.nn.models import Hop, Model


@dataclass
class Cut:
    """A place where the line can be cut: before items[position]; these fields cross it."""

    position: int
    fields: list[Field]
    hop: int                         # number of the first hop behind it


@dataclass
class StagePlan:
    """What one stage does: segments of steps with a hop between each and the next."""

    segments: list[list]
    hops: list[Hop]
    received: list[Field]            # from the stage before
    sent: list[Field]                # to the stage after
    first_hop: int                   # number of the first hop of this stage
    next_hop: int                    # and of the next stage


def line_of(model: Model) -> list:
    """All steps and hops in the order of the forward pass."""
    items = []
    for block, hop in zip(model.blocks, [*model.hops, None]):
        items += [*block, *([hop] if hop else [])]
    return items


def _live(items: list) -> list[dict[Array, Field] | None]:
    """For every position the fields that are read behind it and written before, by their arrays.

    None where raw input is read behind it: features stay on the first stage.
    """
    alive: dict[Array, Field] | None = {}
    live = [alive]
    for item in reversed(items):
        if alive is not None:
            written, read = item.target.planned_value, _values_read(item)
            alive = {array: field for array, field in alive.items() if array is not written}
            alive |= {field.planned_value: field for field in read}
            if item.reads_features or not all(field.wants_gradient for field in alive.values()):
                alive = None
        live.append(alive)
    return live[::-1]


def _values_read(item) -> list[Field]:
    """The fields whose values a step or hop reads going forward."""
    return [*item.reads, *([item.target] if item.adds else [])]


def find_cuts(model: Model) -> list[Cut]:
    """One cut per hop, where that is possible: as late as possible among the narrowest."""
    items = line_of(model)
    live, begin, cuts = _live(items), 0, []
    for at, item in enumerate(items):
        if not isinstance(item, Hop):
            continue
        crossing = {p: list(fields.values()) for p in range(max(begin, 1), at + 1)
                    if (fields := live[p]) is not None}
        begin = at + 1
        if crossing:
            width = {p: sum(field.width for field in fields) for p, fields in crossing.items()}
            position = min(reversed(crossing), key=width.__getitem__)
            cuts.append(Cut(position, crossing[position], item.number))
    return cuts


def balance(costs: list[float], n_stages: int) -> list[int]:
    """Ends of runs of consecutive units, at least one each: the costliest run costs least."""
    n_units = len(costs)
    total = [0.0]
    for cost in costs:
        total.append(total[-1] + cost)
    best = {(0, 0): (0.0, 0)}            # (stages, units): (cost of the costliest, where it begins)
    for stage in range(1, n_stages + 1):
        for end in range(stage, n_units - (n_stages - stage) + 1):
            best[stage, end] = min(
                (max(best[stage - 1, begin][0], total[end] - total[begin]), begin)
                for begin in range(stage - 1, end) if (stage - 1, begin) in best)
    stage_ends, end = [], n_units
    for stage in range(n_stages, 0, -1):
        stage_ends.append(end)
        end = best[stage, end][1]
    return stage_ends[::-1]


def units_of(model: Model, cuts: list[Cut]) -> list[list]:
    """The items between one cut and the next: what a stage is made of."""
    items, bounds = line_of(model), [0, *(cut.position for cut in cuts), None]
    return [items[begin:end] for begin, end in zip(bounds, bounds[1:])]


def check_stages(n_stages: int, n_units: int, model: str):
    """Refuse more stages than there are layers to divide."""
    if n_stages > n_units:
        raise ConfigError(f"{n_stages} stages, but this {model} can be cut into {n_units} at most "
                          f"(a stage holds at least one layer that aggregates): take "
                          f"fewer --stages, more --partitions-per-stage, or more --layers")


def stage_plan(model: Model, cuts: list[Cut], stage_ends: list[int], stage: int) -> StagePlan:
    """The share of one stage; `stage_ends` are those of `balance`."""
    units = units_of(model, cuts)
    begin = stage_ends[stage - 1] if stage else 0
    items = [item for unit in units[begin:stage_ends[stage]] for item in unit]
    segments: list[list] = [[]]
    hops = []
    for item in items:
        if isinstance(item, Hop):
            hops.append(item)
            segments.append([])
        else:
            segments[-1].append(item)
    before = cuts[begin - 1] if stage else None
    after = cuts[stage_ends[stage] - 1] if stage_ends[stage] < len(units) else None
    return StagePlan(segments, hops, before.fields if before else [], after.fields if after else [],
                     before.hop if before else 1, after.hop if after else len(model.hops) + 1)
