"""Memory of a stage: every rank builds the whole model, and allocates the arrays of its part."""

from __future__ import annotations

from functools import partial

from hpcgcn.nn.fields import Field
from hpcgcn.nn.plan import Line, Plan
from hpcgcn.parallel.aggregation import gathers_gradient, largest_block
from hpcgcn.parallel.layers.division import StagePlan


def plan_stage(backend, stage: StagePlan, recompute: bool = False, stale_gradients: bool = False,
               logits: Field | None = None) -> Plan:
    """The plan of a stage's arrays. logits: on the last stage, what the loss reads.

    recompute: activation recomputation where that lets gradients take the memory of activations.
    stale_gradients: what hops gather going back is read by the next epoch, too.
    """
    line = Line(stage.segments, stage.hops, logits, received=stage.received, sent=stage.sent)
    gathered = [hop.target.planned_grad for hop in stage.hops
                if gathers_gradient(hop) and hop.target.planned_grad is not None]
    return Plan(line, by_chunk=True, outlive_epoch=gathered if stale_gradients else [],
                recompute_rows=partial(largest_block, backend) if recompute else None)
