"""Settings of the strategies that divide the work: a group per strategy, and what it refuses."""

from __future__ import annotations

from dataclasses import dataclass, fields

from hpcgcn.config.setting import SettingsGroup, setting
from hpcgcn.errors import ConfigError


def _codec_family(config) -> str:
    from hpcgcn.exchange.policies import codec_rate
    return codec_rate(config)[0]


def _has_budget(config) -> bool:
    from hpcgcn.exchange.policies import parse_bytes
    return parse_bytes(config.byte_budget) > 0


def _changed(group: SettingsGroup) -> list[str]:
    """Names of the settings that are not the defaults."""
    return [spec.name for spec in fields(group) if getattr(group, spec.name) != spec.default]


def _refuse(strategy: str, reasons: tuple[tuple[object, str], ...]):
    for wrong, reason in reasons:
        if wrong:
            raise ConfigError(f"parallel = '{strategy}': {reason}")


@dataclass(frozen=True)
class PartitionSettings(SettingsGroup):
    """parallel = 'partition': every rank owns nodes."""

    partition_method: str = setting("metis", "how a graph file that is not partitioned yet is "
                                             "divided",
                                    choices=("metis", "random", "block"))
    partition_objective: str = setting("volume", "what metis minimises: bytes exchanged, or "
                                                 "edges cut",
                                       choices=("volume", "cut"))


@dataclass(frozen=True)
class FeatureSettings(SettingsGroup):
    """parallel = 'features': ranks aggregate columns of all nodes and update rows."""

    feature_blocks: int = setting(4, "features: row blocks of a transpose, so that one is sent "
                                     "while the next is computed; "
                                  "0: the fastest of 1, 2, 4, 8 and 16, tried at start (15 passes)",
                                  low=0, high=1024)
    sparse_ranks: int = setting(0, "features: this many ranks only aggregate, the others only "
                                   "update; 0: all do both; "
                                "-1: half of them", low=-1)
    sparse_backend: str = setting("auto", "features: backend of the ranks that only aggregate; "
                                          "auto: as backend",
                                  choices=("auto", "reference", "native", "cuda"))

    def check(self, config):
        if config.parallel != "features":
            if self.sparse_ranks or self.sparse_backend != "auto":
                raise ConfigError("sparse_ranks and sparse_backend are for parallel = 'features' "
                                  "(method = 'mixgcn')")
            return
        _refuse("features", (
            (_codec_family(config) == "nodes",
             "codec = 'nodes' leaves out boundary nodes, and a transpose has none: it moves "
             "every row"),
            (config.smooth_features or config.smooth_gradients,
             "smoothing is for halo rows: it would blur a rank's own columns"),
            (_has_budget(config), "byte_budget counts halo rows, and transposes have none; set "
                                  "the rate"),
            (config.precision != "fp32",
             "precision = 'bf16' is for parallel = 'partition'; codec = 'bf16' halves the "
             "transposes"),
            (config.blocking and self.feature_blocks != 1,
             "with blocking nothing is cut into blocks: add feature_blocks = 1")))


@dataclass(frozen=True)
class PipelineSettings(SettingsGroup):
    """parallel = 'layers': ranks hold consecutive layers, chunks of nodes pass through them."""

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
                                             "backward: zero, with those "
                                     "across chunks counted twice; stale: last epoch's",
                                     choices=("zero", "stale"))
    shuffle_chunks: bool = setting(True, "layers: another order of the chunks every epoch")
    recompute: bool = setting(True, "layers: activation recomputation in backward where that "
                                    "frees an array (gcnii)")

    def check(self, config):
        changed = _changed(self)
        if config.parallel != "layers":
            if changed:
                raise ConfigError(f"{' and '.join(changed)}: for parallel = 'layers' only (method "
                                  f"= 'gnnpipe')")
            return
        without_effect = [name for name in changed
                          if name in ("history_hold", "history_gradients", "shuffle_chunks")]
        stale = config.staleness_features or config.staleness_gradients
        _refuse("layers", (
            (_codec_family(config) == "nodes", "codec = 'nodes' leaves out nodes, and the next "
                                               "stage needs every one"),
            (stale and self.partitions_per_stage == 1,
             "staleness is for rows that partitions of a stage exchange, and there is one "
             "partition per stage; the age of "
             "what chunks read of each other is history_hold"),
            (config.error_feedback or config.residual,
             "error_feedback and residual remember rows from epoch to epoch, and a stage link has "
             "room for two chunks"),
            (_has_budget(config), "byte_budget counts halo rows; set the rate"),
            (self.history == "none" and without_effect,
             f"history = 'none' waits for what is read: {', '.join(without_effect)} has no effect"),
            (config.precision != "fp32",
             "precision = 'bf16' is for parallel = 'partition'; codec = 'bf16' halves messages"),
            (config.blocking, "blocking is for parallel = 'partition'")))
