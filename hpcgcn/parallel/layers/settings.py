"""Settings of parallel = 'layers'."""

from __future__ import annotations

from dataclasses import dataclass

from hpcgcn.errors import ConfigError
from hpcgcn.parallel.refusals import (
    attends,
    changed,
    codec_families,
    has_budget,
    is_stale,
    refuse,
)
from hpcgcn.setting import SettingsGroup, setting


@dataclass(frozen=True)
class Settings(SettingsGroup):
    """parallel = 'layers': ranks hold consecutive layers, chunks of nodes pass through them."""

    group_name = "pipeline"

    stages: int = setting(0, "layers: stages of consecutive layers; 0: ranks / partitions per "
                          "stage", low=0)
    partitions_per_stage: int = setting(1, "layers: ranks that share a stage, each with a "
                                           "partition of "
                                        "the nodes; 0: as few as possible, but more than one",
                                        low=0)
    chunks: int = setting(0, "layers: chunks of nodes that pass through the stages; 0: four "
                             "per rank", low=0)
    history: str = setting("snapshot", "layers: how a chunk reads chunks that come later: from a "
                                       "snapshot; none: it waits "
                           "for them, exactly", choices=("snapshot", "none"))
    history_hold: int = setting(23, "layers: epochs for which a snapshot is held", low=1)
    history_gradients: str = setting("zero", "layers: gradients from chunks that come later in "
                                             "backward: zero, with those across chunks counted "
                                             "twice if chunks are shuffled; stale: last epoch's",
                                     choices=("zero", "stale"))
    shuffle_chunks: bool = setting(True, "layers: another order of the chunks every epoch")
    recompute: bool = setting(True, "layers: activation recomputation in backward where that "
                                    "frees an array (gcnii)")

    def check(self, config):
        own = changed(self)
        if config.parallel != "layers":
            if own:
                raise ConfigError(f"{' and '.join(own)}: for parallel = 'layers' only (method "
                                  f"= 'gnnpipe')")
            return
        without_effect = [name for name in own
                          if name in ("history_hold", "history_gradients", "shuffle_chunks")]
        refuse("layers", (
            (attends(config) and not self.zeroes_gradients,
             f"model = '{config.model}' computes coefficients from rows, and those of a snapshot "
             "do not belong to the rows that last epoch's gradients would go to; leave "
             "history_gradients = 'zero'"),
            (config.norm == "batch",
             "norm = 'batch' needs the sums of all rows before any row goes on, and here chunks of "
             "rows pass one after the other; use norm = 'yes' (LayerNorm), or parallel = "
             "'partition'"),
            ("none" in codec_families(config), "codec = 'none' sends nothing, and the next stage "
                                               "needs every row"),
            ("nodes" in codec_families(config), "codec = 'nodes' leaves out nodes, and the next "
                                               "stage needs every one"),
            (is_stale(config) and self.partitions_per_stage == 1,
             "staleness is for rows that partitions of a stage exchange, and there is one "
             "partition per stage; the age of "
             "what chunks read of each other is history_hold"),
            (config.error_feedback or config.residual,
             "error_feedback and residual remember rows from epoch to epoch, and a stage link has "
             "room for two chunks"),
            (has_budget(config), "byte_budget counts halo rows; set the rate"),
            (self.history == "none" and without_effect,
             f"history = 'none' waits for what is read: {', '.join(without_effect)} has no effect"),
            (config.precision == "bf16",
             "precision = 'bf16' is for parallel = 'partition'; codec = 'bf16' halves messages"),
            (config.blocking, "blocking is for parallel = 'partition'")))

    @property
    def keeps_history(self) -> bool:
        """Do chunks read later ones from a snapshot? Else they wait for them: exact."""
        return self.history == "snapshot"

    @property
    def zeroes_gradients(self) -> bool:
        """Do gradients of later chunks count nothing?"""
        return self.history_gradients == "zero"

    @property
    def doubles_gradients(self) -> bool:
        """Do gradients across chunks count twice?

        In a random order every edge across chunks carries its gradient in half of the epochs, so
        twice of it is right on average. In a fixed order some always do and others never: twice
        would be wrong for all of them, once is right for those that do.
        """
        return self.keeps_history and self.zeroes_gradients and self.shuffle_chunks

    @property
    def recomputes(self) -> bool:
        """Last epoch's gradients outlive the forward pass: then no activation can take their
        place."""
        return self.recompute and (self.zeroes_gradients or not self.keeps_history)
