"""Every rank aggregates some columns of all nodes and updates all columns of some nodes."""

from __future__ import annotations

from hpcgcn.graph.data import Part
from hpcgcn.parallel.features.aggregations import TransposedAggregations
from hpcgcn.parallel.features.loading import count_sparse_ranks, load_slice
from hpcgcn.parallel.features.tuning import USUAL_BLOCKS, fastest_blocks
from hpcgcn.parallel.features.whole_graph import WholeGraph, build_whole
from hpcgcn.parallel.needed import Depth
from hpcgcn.parallel.strategy import Strategy, exact_policies

BLOCKS = "blocks"                    # in choices.json


class FeatureStrategy(Strategy):
    """MixGCN; with `sparse_ranks` the first ranks only aggregate and the others only update."""

    def __init__(self, runtime, config):
        super().__init__(runtime, config)
        self.n_sparse = count_sparse_ranks(config, runtime.size)

    @property
    def n_blocks(self) -> int:
        """Row blocks of a transpose; 0: not chosen yet."""
        return self.config.feature_blocks or self.choices.get(BLOCKS, 0)

    @property
    def backend_name(self) -> str:
        config = self.config
        aggregates = self.runtime.rank < self.n_sparse
        return (config.sparse_backend if aggregates
                and config.sparse_backend != "auto" else config.backend)

    def load(self, source) -> Part:
        return load_slice(self.runtime.comm, source, self.config, self.n_sparse)

    def local_graph(self, part: Part, self_loops: bool, depth: Depth) -> WholeGraph:
        return build_whole(self.runtime.comm, part, self_loops, depth,
                           all_rows=not self.config.needed_rows, order_blocks=self.n_sparse > 0)

    def aggregations(self, backend, local, model, policies=None) -> TransposedAggregations:
        return self._aggregations(backend, local, model, policies, self.n_blocks or USUAL_BLOCKS)

    def training_aggregations(self, engine) -> TransposedAggregations:
        def make(n_blocks: int) -> TransposedAggregations:
            return self._aggregations(engine.backend, engine.local, engine.model, engine.policies,
                                      n_blocks)

        self.choices[BLOCKS] = self.n_blocks or fastest_blocks(engine, make)
        return make(self.n_blocks)

    def _aggregations(self, backend, local, model, policies, n_blocks) -> TransposedAggregations:
        training, plain = exact_policies(policies)
        return TransposedAggregations(self.runtime, backend, local, model, training, plain,
                                      seed=self.config.seed, n_blocks=n_blocks,
                                      aggregators=list(range(self.n_sparse)))

    def facts(self, engine) -> dict:
        return {"feature_blocks": self.n_blocks}


STRATEGY = FeatureStrategy
