"""Settings of parallel = 'features'."""

from __future__ import annotations

from dataclasses import dataclass

from hpcgcn.backend import BACKENDS
from hpcgcn.errors import ConfigError
from hpcgcn.parallel.refusals import attends, codec_families, has_budget, refuse, smooths
from hpcgcn.setting import SettingsGroup, setting


@dataclass(frozen=True)
class Settings(SettingsGroup):
    """parallel = 'features': ranks aggregate columns of all nodes and update rows."""

    group_name = "features"

    feature_blocks: int = setting(4, "features: row blocks of a transpose, so that one is sent "
                                     "while the next is computed; "
                                  "0: the fastest of 1, 2, 4, 8 and 16, tried at start (15 passes)",
                                  low=0, high=1024)
    sparse_ranks: int = setting(0, "features: this many ranks only aggregate, the others only "
                                   "update; 0: all do both; "
                                "-1: half of them", low=-1)
    sparse_backend: str = setting("auto", "features: backend of the ranks that only aggregate; "
                                          "auto: as backend",
                                  choices=("auto", *BACKENDS))

    def check(self, config):
        if config.parallel != "features":
            if self.sparse_ranks or self.sparse_backend != "auto":
                raise ConfigError("sparse_ranks and sparse_backend are for parallel = 'features' "
                                  "(method = 'mixgcn')")
            return
        refuse("features", (
            (attends(config),
             f"model = '{config.model}' computes coefficients from whole rows, and here a rank "
             "aggregates some columns of them; use parallel = 'partition'"),
            ("none" in codec_families(config),
             "codec = 'none' sends nothing, and a transpose moves every row"),
            ("nodes" in codec_families(config),
             "codec = 'nodes' leaves out boundary nodes, and a transpose has none: it moves "
             "every row"),
            (smooths(config),
             "smoothing is for halo rows: it would blur a rank's own columns"),
            (has_budget(config), "byte_budget counts halo rows, and transposes have none; set "
                                  "the rate"),
            (config.precision == "bf16",
             "precision = 'bf16' is for parallel = 'partition'; codec = 'bf16' halves the "
             "transposes"),
            (config.blocking and self.feature_blocks != 1,
             "with blocking nothing is cut into blocks: add feature_blocks = 1")))
