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

    partition_method: str = setting("auto", "how a graph file that is not partitioned yet is "
                                            "divided; auto: the best that fits the memory",
                                    choices=("auto", "metis", "kaminpar", "streaming", "labels",
                                             "random", "block"))
    partition_objective: str = setting("auto", "what metis minimises: bytes exchanged, or edges "
                                               "cut; auto: both are tried on small graphs",
                                       choices=("auto", "volume", "cut"))
    halo: str = setting("auto", "what is exchanged for cut edges: rows; cover: rows or partial "
                                "sums, whichever are fewer, per pair of ranks and hop; auto: cover "
                                "where it saves 2 %, not with codec nodes, precision bf16 or "
                                "attention (gat)",
                        choices=("auto", "rows", "cover"))

    once_per_host: bool = setting(False, "send what several ranks of a host read to that host "
                                         "once: one of them receives it and passes it on; for "
                                         "hosts with several ranks on a slow network")

    def check(self, config):
        if self.once_per_host:
            refuse_once_per_host(config)
        if self.halo == "cover" and "nodes" in codec_families(config):
            raise ConfigError("halo = 'cover' does not go with codec = 'nodes': it leaves out rows "
                              "at random, and a partial sum cannot leave out one of its rows; "
                              "write halo = 'rows'")
        if config.precision == "bf16" and attends(config):
            raise ConfigError(f"precision = '{config.precision}' does not go with model = "
                              f"'{config.model}': attention reads rows in fp32; leave it out")


def refuse_once_per_host(config):
    """Raise ConfigError if nobody could pass rows on."""
    def message(reason: str) -> ConfigError:
        return ConfigError(f"once_per_host does not go with {reason}")
    if config.parallel not in ("auto", "single", "partition"):
        raise message(f"parallel = '{config.parallel}': it is for parts of which each rank has one"
                      + ("; there every column of a row crosses once per host anyway"
                         if config.parallel == "hosts" else ""))
    if config.transport == "nccl":
        raise message("transport = 'nccl', in which all ranks send in the same order; use "
                      "transport = 'mpi'")


def halo_kind(config) -> str:
    """What is exchanged: `auto` means rows where sums cannot be made, or would be rounded again.

    Of coefficients that change from epoch to epoch no sums can be made.
    """
    if attends(config):
        return "rows"
    unfit = "nodes" in codec_families(config) or config.precision == "bf16"
    return "rows" if config.halo == "auto" and unfit else config.halo
