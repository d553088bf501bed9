"""Ranks as a grid: a stage holds consecutive layers, the ways of a stage hold different nodes."""

from __future__ import annotations

from dataclasses import dataclass

from hpcgcn.errors import ConfigError
from hpcgcn.mpi.runtime import Runtime


def grid_shape(ways: int, stages: int, n_ranks: int) -> tuple[int, int]:
    """(ways, stages) that the settings mean; 0 leaves one open."""
    if not ways and stages:
        ways = n_ranks // stages
    if not ways:                         # a hybrid with as few ways as possible
        ways = next((w for w in range(2, n_ranks + 1) if n_ranks % w == 0), 1)
    found = stages or max(n_ranks // ways, 1)
    if ways * found != n_ranks:
        wanted = f"{ways} ways x {found} stages" if ways > 1 else f"{found} stages"
        raise ConfigError(f"{wanted} need {ways * found} ranks, but {n_ranks} were started: change --ways and --stages "
                          f"(now {ways} and {stages or 'auto'}), or start {ways * found} ranks")
    return ways, found


@dataclass
class Grid:
    """This rank's place. Rank r is way r % n_ways of stage r // n_ways."""

    world: Runtime                   # of all ranks
    ways: Runtime                    # of the ranks of this stage
    stages: Runtime                  # of the ranks of this way
    n_ways: int
    n_stages: int

    @property
    def stage(self) -> int:
        """The stage of this rank."""
        return self.stages.rank

    @property
    def way(self) -> int:
        """The partition of the nodes that this rank holds."""
        return self.ways.rank

    @property
    def first(self) -> bool:
        """Is this the first stage?"""
        return self.stage == 0

    @property
    def last(self) -> bool:
        """Is this the last stage?"""
        return self.stage == self.n_stages - 1

    def neighbour(self, step: int) -> int:
        """The rank of the next (1) or previous (-1) stage that holds the same nodes."""
        return self.world.rank + step * self.n_ways


def make_grid(runtime: Runtime, ways: int, stages: int) -> Grid:
    """The grid of all ranks. Collective."""
    ways, stages = grid_shape(ways, stages, runtime.size)
    return Grid(runtime, runtime.split(runtime.rank // ways), runtime.split(runtime.rank % ways), ways, stages)
