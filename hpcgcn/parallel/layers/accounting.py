"""What is reported of a pipeline: bubble, balance of the stages, age of the rows read."""

from __future__ import annotations

from hpcgcn.parallel.balance import max_over_mean


def bubble_share(row: dict) -> float:
    """Share of all ranks' time in which they wait: for a chunk, for halo rows, or for the last
    stage to be through."""
    idle = row["wait_seconds"] + row["allreduce_seconds"]
    whole = idle + row["pack_seconds"] + row["unpack_seconds"] + row["compute_seconds"]
    return idle / whole if whole else 0.0


def pipeline_costs(ranks: list[dict], pipeline: dict) -> dict:
    """What is known of a pipeline, with what was measured: the bubble, and how evenly the stages
    are loaded."""
    seconds = [r["compute_seconds"] for r in ranks]
    total = {name: sum(r[name] for r in ranks) for name in ranks[0] if name.endswith("_seconds")}
    n_ranks = pipeline["partitions_per_stage"]           # of a stage
    stages = [sum(seconds[s * n_ranks:(s + 1) * n_ranks]) for s in range(pipeline["stages"])]
    return pipeline | {"bubble_measured": bubble_share(total), "compute_seconds_of_stages": stages,
                       "balance": max_over_mean(stages)}


def ages_line(shares: dict[str, float]) -> str:
    """A line about how old the rows were that chunks read of each other, if some were."""
    aged = {int(age): share for age, share in shares.items() if age.isdecimal()}
    held, zeros = sum(aged.values()), shares.get("zeros", 0.0)
    if not held + zeros:
        return ""
    parts = [f"{100 * shares.get('current', 0.0):.0f} % current"]
    if held:
        mean = sum(age * share for age, share in aged.items()) / held
        parts.append(f"{100 * held:.0f} % from snapshots of {min(aged)} to {max(aged)} epochs "
                     f"ago (mean {mean:.1f})")
    if zeros:
        parts.append(f"{100 * zeros:.0f} % before the first snapshot")
    return f"rows read of neighbours: {', '.join(parts)}\n"


def pipeline_line(pipeline: dict) -> str:
    """How long the stages of a pipeline wait, and how evenly they are loaded."""
    return (f"{pipeline['stages']} stages x {pipeline['partitions_per_stage']} partitions, "
            f"{pipeline['chunks']} chunks: bubble {100 * pipeline['bubble_measured']:.0f} % "
            f"(formula {100 * pipeline['bubble_predicted']:.0f} %), slowest stage "
            f"{pipeline['balance']:.2f} times the mean\n{ages_line(pipeline['reads_by_age'])}")
