"""Ranks as a grid: a stage holds consecutive layers, the partitions of a stage hold different
nodes."""

from __future__ import annotations

from dataclasses import dataclass

from hpcgcn.errors import ConfigError
from hpcgcn.mpi.runtime import Runtime


def grid_shape(partitions: int, stages: int, n_ranks: int) -> tuple[int, int]:
    """(partitions, stages) that the settings mean; 0 leaves one open."""
    if not partitions and stages:
        partitions = n_ranks // stages
    if not partitions:                         # a hybrid with as few partitions as possible
        partitions = next((n for n in range(2, n_ranks + 1) if n_ranks % n == 0), 1)
    n_stages = stages or max(n_ranks // partitions, 1)
    if partitions * n_stages != n_ranks:
        needed = (f"{partitions} partitions x {n_stages} stages" if partitions > 1
                  else f"{n_stages} stages")
        raise ConfigError(f"{needed} need {partitions * n_stages} ranks, but {n_ranks} were "
                          f"started: change --partitions-per-stage and --stages (now {partitions} "
                          f"and {stages or 'auto'}), or start {partitions * n_stages} ranks")
    return partitions, n_stages


@dataclass
class Grid:
    """This rank's place. Rank r is partition r % n_partitions of stage r // n_partitions."""

    world: Runtime                   # of all ranks
    partitions: Runtime              # of the ranks of this stage, one per partition
    stages: Runtime                  # of the ranks of this partition
    n_partitions: int
    n_stages: int

    @property
    def stage(self) -> int:
        """The stage of this rank."""
        return self.stages.rank

    @property
    def partition(self) -> int:
        """The partition of the nodes that this rank holds."""
        return self.partitions.rank

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
        return self.world.rank + step * self.n_partitions


def make_grid(runtime: Runtime, partitions: int, stages: int) -> Grid:
    """The grid of all ranks. Collective."""
    partitions, stages = grid_shape(partitions, stages, runtime.size)
    return Grid(runtime, runtime.split(runtime.rank // partitions),
                runtime.split(runtime.rank % partitions), partitions, stages)
