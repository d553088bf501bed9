"""One rank holds the whole graph."""

from __future__ import annotations

from hpcgcn.errors import ConfigError
from hpcgcn.graph.data import Part
from hpcgcn.parallel.partition.loading import load_partition
from hpcgcn.parallel.single.aggregations import WholeAggregations
from hpcgcn.parallel.strategy import Strategy


class SingleStrategy(Strategy):
    """Every hop is one sparse product."""

    moves_rows = True
    repeats = True

    def __init__(self, runtime, config):
        super().__init__(runtime, config)
        if runtime.size > 1:
            raise ConfigError(f"parallel = 'single' is for one rank, but {runtime.size} were "
                              "started: each would see only its own part; leave it 'auto', or "
                              "start one rank")

    @classmethod
    def inference_config(cls, config):
        """A model that was trained on one rank runs on any number."""
        return config.replace(parallel="auto")

    def load(self, source) -> Part:
        return load_partition(self.runtime.comm, source, self.config)

    def aggregations(self, backend, local, model, policies=None) -> WholeAggregations:
        return WholeAggregations(backend, local, model, self.config.precision)


STRATEGY = SingleStrategy
