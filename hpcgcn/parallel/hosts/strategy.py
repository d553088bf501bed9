"""Hosts own nodes and exchange halo rows; the ranks of a host divide the columns."""

from __future__ import annotations

import numpy as np

from hpcgcn.graph.data import Part, SparseRows
from hpcgcn.parallel.engine import Engine
from hpcgcn.parallel.hosts.aggregations import HostAggregations
from hpcgcn.parallel.hosts.groups import HostGroups
from hpcgcn.parallel.hosts.host_graph import HostGraph, HostPart, host_part
from hpcgcn.parallel.hosts.loading import load_share
from hpcgcn.parallel.local_graph import restrict
from hpcgcn.parallel.needed import EVALUATED, Depth, model_depth
from hpcgcn.parallel.strategy import Strategy, exact_policies


class HostStrategy(Strategy):
    """Partition across hosts, columns within each: volume that counts hosts, not ranks."""

    def __init__(self, runtime, config):
        super().__init__(runtime, config)
        self.groups = HostGroups(runtime)

    @classmethod
    def inference_config(cls, config):
        """A model runs on any division of the graph."""
        return config.replace(parallel="auto")

    def load(self, source) -> Part:
        return load_share(self.groups, source, self.config)

    def subgraph(self, part: Part, keep: np.ndarray) -> Part:
        return restrict(self.groups.everyone.comm, part, keep)

    def make_engine(self, backend, part: Part, shape, parameters, *, precompute: bool,
                    make_policies=None) -> Engine:
        depth = (model_depth(shape, sparse=isinstance(part.features, SparseRows),
                             precomputed=precompute) if make_policies else EVALUATED)
        mine = host_part(self.groups, part, self.config, shape.self_loops, depth, precompute)
        return super().make_engine(backend, mine, shape, parameters, precompute=precompute,
                                   make_policies=make_policies)

    def local_graph(self, part: Part, self_loops: bool, depth: Depth) -> HostGraph:
        if not isinstance(part, HostPart):
            raise TypeError("parallel = 'hosts' computes with the rows of a HostPart")
        return part.graph

    def rows_sent(self, local: HostGraph, hop: int) -> int:
        n_sent = local.halos.of_hop(hop).n_sent      # collective, so on all ranks of a host
        return n_sent if local.first else 0

    def aggregations(self, backend, local, model, policies=None) -> HostAggregations:
        config, (training, plain) = self.config, exact_policies(policies)
        return HostAggregations(self.groups, backend, local, model, training, plain,
                                seed=config.seed, blocking=config.blocking,
                                precision=config.precision)

    def facts(self, engine) -> dict:
        return {"host_parts": self.groups.n_hosts, "ranks_per_host": self.groups.per_host}


STRATEGY = HostStrategy
