"""What a strategy is: all that one way of dividing the work over the ranks needs to be.

How a rank gets its part of the graph, what it computes with it, who holds which parameters, and
what is reported. A run makes one strategy; it makes an engine per graph (training and, for
inductive runs, evaluation). The defaults below are those of strategies in which a rank owns nodes
and every rank holds all parameters.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hpcgcn.exchange.policies import plain_policy
from hpcgcn.graph.data import Part
from hpcgcn.nn.parameters import Parameters
from hpcgcn.parallel.aggregation import Aggregations
from hpcgcn.parallel.engine import Engine
from hpcgcn.parallel.local_graph import build_local, restrict
from hpcgcn.parallel.needed import Depth
from hpcgcn.parallel.sharding import Replicated


class Strategy:
    """One way of dividing the work. `runtime`: of all ranks of the job."""

    # Do its aggregations ask in every pass where rows are? Then training and evaluation have plans
    # of their own, in the same memory.
    moves_rows = False
    # Does a training pass queue the same operations on the same arrays in every epoch, and wait
    # for no other rank?
    repeats = False
    metric_columns: tuple[str, ...] = ()     # of metrics.csv, beyond those of every run

    def __init__(self, runtime, config):
        self.runtime, self.config = runtime, config
        # made by measuring at start; a resumed run keeps them
        self.choices: dict[str, Any] = {}

    # -- loading -----------------------------------------------------------------------------------
    def load(self, source) -> Part:
        """This rank's part of a graph file, a partition file or a Graph. Collective."""
        raise NotImplementedError

    def subgraph(self, part: Part, keep: np.ndarray) -> Part:
        """This rank's part of the subgraph of some nodes; keep: (n_owned,) bool. Collective."""
        return restrict(self.runtime.comm, part, keep)

    @property
    def copies(self) -> int:
        """How many ranks hold each node."""
        return 1

    @property
    def backend_name(self) -> str:
        """What computes on this rank."""
        return self.config.backend

    @classmethod
    def inference_config(cls, config):
        """The settings with which a model that was trained so is evaluated elsewhere."""
        return config

    # -- the model ---------------------------------------------------------------------------------
    def make_parameters(self, backend, specs) -> Parameters:
        """The parameters that this rank holds."""
        return Parameters(backend, specs, self.config.seed)

    def sharding(self, parameters):
        """Who holds which of them."""
        return Replicated(self.runtime, parameters)

    def make_engine(self, backend, part: Part, shape, parameters, *, precompute: bool,
                    make_policies=None):
        """What runs a model over a part; without make_policies only exactly. Collective."""
        return Engine(self, backend, part, shape, parameters, precompute=precompute,
                      make_policies=make_policies)

    def local_graph(self, part: Part, self_loops: bool, depth: Depth):
        """The part as this strategy computes with it. Collective.

        depth: of the model that is trained on it, or EVALUATED.
        """
        return build_local(self.runtime.comm, part, self_loops, depth.n_hops,
                           all_rows=not self.config.needed_rows, whole_blocks=depth.whole_blocks)

    def rows_sent(self, local, hop: int) -> int:
        """Rows that this rank sends in a hop of training, counted once per receiver. Collective."""
        return local.rows_sent

    def aggregations(self, backend, local, model, policies=None) -> Aggregations:
        """A model's hops on this rank. policies: exchange settings of training, if it trains."""
        raise NotImplementedError

    def training_aggregations(self, engine) -> Aggregations:
        """The same for an engine that is otherwise ready; here something may be measured first."""
        return self.aggregations(engine.backend, engine.local, engine.model, engine.policies)

    # -- what is reported --------------------------------------------------------------------------
    def epoch_metrics(self, engine, row: dict) -> dict:
        """The values of `metric_columns` for an epoch; row: the other columns, on rank 0."""
        return {}

    def facts(self, engine) -> dict:
        """What the summary adds to that of every run. Collective."""
        return {}

    def with_costs(self, facts: dict, by_rank: list[dict]) -> dict:
        """The same facts with what follows from the costs of each rank. On rank 0."""
        return facts

    def closing_lines(self, summary: dict) -> str:
        """Lines for people at the end of a run."""
        return ""

    def remedy(self) -> str:
        """What may help if a run does not train, if this strategy can be the reason."""
        return ""


def exact_policies(policies):
    """(policies of training, policy of evaluation); a model that is only evaluated has no
    others."""
    plain = plain_policy()
    return policies or (lambda hop, direction: plain), plain
