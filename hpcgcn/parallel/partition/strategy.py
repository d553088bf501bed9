"""Every rank owns the nodes of one part and exchanges halo rows with its neighbours."""

from __future__ import annotations

from hpcgcn.graph.data import Part
from hpcgcn.parallel.partition.aggregations import HaloAggregations
from hpcgcn.parallel.partition.loading import load_partition
from hpcgcn.parallel.strategy import Strategy, exact_policies


class PartitionStrategy(Strategy):
    """vanilla, overlap, PipeGCN, Sylvie, VARCO and BNS: one halo exchange per hop and direction."""

    def load(self, source) -> Part:
        return load_partition(self.runtime.comm, source, self.config)

    def aggregations(self, backend, local, model, policies=None) -> HaloAggregations:
        config, (training, plain) = self.config, exact_policies(policies)
        return HaloAggregations(self.runtime, backend, local, model, training, plain,
                                seed=config.seed, blocking=config.blocking,
                                precision=config.precision, for_loss=policies is not None)


STRATEGY = PartitionStrategy
