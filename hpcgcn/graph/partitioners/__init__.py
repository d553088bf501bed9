"""Partitioners: each divides the nodes of a graph; one file each, and this table."""

from __future__ import annotations

from hpcgcn.graph.partitioners.base import Partitioner
from hpcgcn.graph.partitioners.kaminpar import KaMinPar
from hpcgcn.graph.partitioners.labels import Labels
from hpcgcn.graph.partitioners.metis import Metis
from hpcgcn.graph.partitioners.simple import Block, Random
from hpcgcn.graph.partitioners.streaming import Streaming

PARTITIONERS: dict[str, Partitioner] = {
    partitioner.name: partitioner
    for partitioner in (Metis(), KaMinPar(), Streaming(), Labels(), Random(), Block())}
