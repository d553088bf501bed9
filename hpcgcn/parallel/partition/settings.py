"""Settings of parallel = 'partition'."""

from __future__ import annotations

from dataclasses import dataclass

from hpcgcn.setting import SettingsGroup, setting


@dataclass(frozen=True)
class Settings(SettingsGroup):
    """parallel = 'partition': every rank owns nodes."""

    group_name = "partition"

    partition_method: str = setting("metis", "how a graph file that is not partitioned yet is "
                                             "divided",
                                    choices=("metis", "random", "block"))
    partition_objective: str = setting("volume", "what metis minimises: bytes exchanged, or "
                                                 "edges cut",
                                       choices=("volume", "cut"))
