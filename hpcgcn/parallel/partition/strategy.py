"""Every rank owns the nodes of one part and exchanges halo rows with its neighbours."""

from __future__ import annotations

import logging

from hpcgcn.graph.data import Part
from hpcgcn.parallel.partition.aggregations import HaloAggregations
from hpcgcn.parallel.partition.halo_plans import HaloPlans
from hpcgcn.parallel.partition.loading import load_partition
from hpcgcn.parallel.partition.settings import halo_kind
from hpcgcn.parallel.refusals import attends
from hpcgcn.parallel.strategy import Strategy, exact_policies

log = logging.getLogger(__name__)


class PartitionStrategy(Strategy):
    """vanilla, overlap, PipeGCN, Sylvie, VARCO and BNS: one halo exchange per hop and direction."""

    moves_rows = True

    def load(self, source) -> Part:
        return load_partition(self.runtime.comm, source, self.config)

    def __init__(self, runtime, config):
        super().__init__(runtime, config)
        self._halos: list[HaloPlans] = []
        if config.halo == "cover" and attends(config) and runtime.comm.rank == 0:
            log.warning("halo = 'cover': rows are sent; model = '%s' weights them where they are "
                        "read, so nobody can add them up before", config.model)

    def _halos_of(self, local) -> HaloPlans:
        """What the hops over a local graph exchange."""
        for plans in self._halos:
            if plans.local is local:
                return plans
        hosts = self.runtime.hosts if self.config.once_per_host else None
        self._halos.append(HaloPlans(local, halo_kind(self.config), hosts))
        return self._halos[-1]

    def rows_sent(self, local, hop: int) -> int:
        return self._halos_of(local).of_hop(hop).n_sent

    def aggregations(self, backend, local, model, policies=None) -> HaloAggregations:
        config, (training, plain) = self.config, exact_policies(policies)
        return HaloAggregations(self.runtime, backend, local, model, training, plain,
                                seed=config.seed, blocking=config.blocking,
                                precision=config.precision, halos=self._halos_of(local),
                                trains=policies is not None)


STRATEGY = PartitionStrategy
