"""Settings of parallel = 'partition'."""

from __future__ import annotations

from dataclasses import dataclass

from hpcgcn.errors import ConfigError
from hpcgcn.parallel.refusals import attends, codec_families
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
    halo: str = setting("auto", "what is exchanged for cut edges: rows; cover: rows or partial "
                                "sums, whichever are fewer, per pair of ranks and hop; auto: cover "
                                "where it saves 2 %, not with codec nodes, precision bf16 or "
                                "attention (gat)",
                        choices=("auto", "rows", "cover"))

    def check(self, config):
        if self.halo == "cover" and "nodes" in codec_families(config):
            raise ConfigError("halo = 'cover' does not go with codec = 'nodes': it leaves out rows "
                              "at random, and a partial sum cannot leave out one of its rows; "
                              "write halo = 'rows'")
        if config.precision != "fp32" and attends(config):
            raise ConfigError(f"precision = '{config.precision}' does not go with model = "
                              f"'{config.model}': attention reads rows in fp32; leave it out")


def halo_kind(config) -> str:
    """What is exchanged: `auto` means rows where sums cannot be made, or would be rounded again.

    Of coefficients that change from epoch to epoch no sums can be made.
    """
    if attends(config):
        return "rows"
    unfit = "nodes" in codec_families(config) or config.precision != "fp32"
    return "rows" if config.halo == "auto" and unfit else config.halo
