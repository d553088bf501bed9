"""Ranks hold consecutive layers (stages); chunks of nodes pass through them."""

from __future__ import annotations

import numpy as np

from hpcgcn.graph.data import Part
from hpcgcn.nn.parameters import Parameters
from hpcgcn.parallel import strategy_named
from hpcgcn.parallel.layers.accounting import bubble_share, pipeline_costs, pipeline_line
from hpcgcn.parallel.layers.engine import PipelineEngine
from hpcgcn.parallel.layers.grid import make_grid
from hpcgcn.parallel.layers.loading import load_chunks
from hpcgcn.parallel.layers.settings import Settings
from hpcgcn.parallel.layers.sharding import Staged
from hpcgcn.parallel.local_graph import restrict
from hpcgcn.parallel.strategy import Strategy


class LayerStrategy(Strategy):
    """GNNPipe, and its hybrid with partitions of the graph among the ranks of a stage."""

    metric_columns = ("bubble_share", "history_share")

    def __init__(self, runtime, config):
        super().__init__(runtime, config)
        self.settings: Settings = getattr(config, Settings.group_name)
        self.grid = make_grid(runtime, self.settings.partitions_per_stage, self.settings.stages)
        # What the ranks of a stage do among themselves where no pipeline is needed.
        name = "single" if self.grid.n_partitions == 1 else "partition"
        self.within_stage = strategy_named(name)(self.grid.partitions, config)

    @classmethod
    def inference_config(cls, config):
        """A model runs on any division of the graph."""
        return config.replace(parallel="auto", **{Settings.group_name: Settings()})

    @property
    def copies(self) -> int:
        return self.grid.n_stages

    def load(self, source) -> Part:
        return load_chunks(self.grid, source, self.config)

    def subgraph(self, part: Part, keep: np.ndarray) -> Part:
        return restrict(self.grid.partitions.comm, part, keep)

    def make_parameters(self, backend, specs) -> Parameters:
        return Parameters(backend, specs, self.config.seed, allocate=False)

    def sharding(self, parameters: Parameters) -> Staged:
        return Staged(self.grid, parameters)

    def make_engine(self, backend, part: Part, shape, parameters, *, precompute: bool,
                    make_policies=None) -> PipelineEngine:
        return PipelineEngine(self, backend, part, shape, parameters, precompute=precompute,
                              make_policies=make_policies)

    def epoch_metrics(self, engine: PipelineEngine, row: dict) -> dict:
        return {"bubble_share": bubble_share(row), "history_share": engine.history_share}

    def facts(self, engine: PipelineEngine) -> dict:
        return {"pipeline": engine.facts()}

    def with_costs(self, facts: dict, by_rank: list[dict]) -> dict:
        return facts | {"pipeline": pipeline_costs(by_rank, facts["pipeline"])}

    def closing_lines(self, summary: dict) -> str:
        return pipeline_line(summary["pipeline"])

    def remedy(self) -> str:
        if not self.settings.keeps_history:
            return ""
        return ("chunks may read rows that are too stale: try a shorter --history-hold, more "
                "--partitions-per-stage (gnnpipe-hybrid), fewer --stages or --chunks; --history "
                "none is exact and tells whether history is the cause")


STRATEGY = LayerStrategy
