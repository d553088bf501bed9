"""One graph on this rank, ready to run: local matrices, the model over its rows, and the strategy that moves them."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from hpcgcn.exchange.policies import plain_policy
from hpcgcn.graph.data import TRAIN, Part, SparseRows
from hpcgcn.graph.local import build_local
from hpcgcn.graph.whole import build_whole
from hpcgcn.nn.fields import Field
from hpcgcn.nn.models import Hop, Inputs, Model, Shape, build_model
from hpcgcn.nn.plan import Plan, whole_line
from hpcgcn.nn.steps import PassContext
from hpcgcn.parallel.features import FeatureStrategy
from hpcgcn.parallel.partition import PartitionStrategy
from hpcgcn.parallel.single import SingleStrategy


# Into how many blocks transposes are cut: what is tried if none is given, passes of each (the first one warms up), and what
# is used where nothing is worth trying.
BLOCK_CHOICES, TRIALS, USUAL_BLOCKS, ABOUT_AS_FAST = (1, 2, 4, 8, 16), 5, 4, 0.05


@dataclass
class Labels:
    """Labels and splits of the local rows, on the backend and on the host."""

    host: np.ndarray                 # (n_owned,) int32 or (n_owned, n_classes) uint8
    split: np.ndarray                # (n_owned,) uint8
    train: object                    # backend: labels with -1 outside the train split, or multi-label targets
    row_used: object                 # backend, multi-label: 1 for train rows
    n_train: int                     # over all ranks

    @property
    def multilabel(self) -> bool:
        return self.host.ndim == 2


class Engine:
    """Runs a model over one graph, forward and backward. Parameters are shared between engines."""

    def __init__(self, runtime, backend, part: Part, shape: Shape, parameters, *, seed: int, parallel: str,
                 precision: str = "fp32", blocking: bool = False, precompute: bool = False, n_blocks: int = 0,
                 n_sparse: int = 0, make_policies=None):
        """n_blocks: into how many blocks transposes are cut (parallel = 'features'); 0: what an epoch is fastest with."""
        self.runtime, self.comm = runtime, runtime.comm
        self.backend, self.shape, self.parameters = backend, shape, parameters
        self.seed, self.parallel, self.precision, self.blocking = seed, parallel, precision, blocking
        self.n_blocks, self.n_sparse = n_blocks, n_sparse
        if parallel == "features":
            self.local = build_whole(self.comm, part, shape.self_loops, order_blocks=n_sparse > 0)
        else:
            self.local = build_local(self.comm, part, shape.self_loops)
        self.labels = self._labels(part)
        self.ids = backend.from_host(self.local.ids)
        inputs = self._inputs(part, precompute)
        self.model = build_model(backend, shape, parameters, self.local.n_owned, inputs)
        self.plan = Plan(whole_line(self.model))
        self.plan.bind(backend)
        # Training's exchanges depend on the hops' widths and on how many rows travel: known only now.
        self.policies = make_policies(self) if make_policies else None
        if parallel == "features" and not n_blocks:
            self.n_blocks = self._fastest_blocks()
        self.strategy = self._strategy(self.model, self.policies)

    # -- set-up -------------------------------------------------------------------------------------------------------
    def _strategy(self, model: Model, policies):
        training = policies is not None
        if self.parallel == "single":
            return SingleStrategy(self.backend, self.local, model, self.precision, for_loss=training)
        plain = plain_policy()
        policies = policies or (lambda hop, direction: plain)
        if self.parallel == "features":
            return FeatureStrategy(self.runtime, self.backend, self.local, model, policies, plain, seed=self.seed,
                                   n_blocks=self.n_blocks or USUAL_BLOCKS, aggregators=list(range(self.n_sparse)))
        return PartitionStrategy(self.runtime, self.backend, self.local, model, policies, plain, seed=self.seed,
                                 blocking=self.blocking, precision=self.precision, for_loss=training)

    def _fastest_blocks(self) -> int:
        """The number of blocks with the fastest epoch, each tried in turn on this very model; all ranks agree on it."""
        seconds = {}
        for n_blocks in BLOCK_CHOICES if self.comm.size > 1 else (USUAL_BLOCKS,):
            self.n_blocks = n_blocks
            self.strategy = self._strategy(self.model, self.policies)
            seconds[n_blocks] = min(self._timed_pass() for _ in range(TRIALS))
            self.strategy.close()
        # The usual number unless another is clearly faster: passes this short differ by some per cent from one to the next.
        fastest = min(seconds, key=seconds.get)
        return USUAL_BLOCKS if seconds[USUAL_BLOCKS] <= (1 + ABOUT_AS_FAST) * seconds[fastest] else fastest

    def _timed_pass(self) -> float:
        """Seconds of a training pass on the slowest rank. It leaves gradients, which the next pass overwrites, and nothing else."""
        from mpi4py import MPI
        self.comm.Barrier()
        began = time.perf_counter()
        self.train_pass(0)
        self.backend.synchronize()
        return self.comm.allreduce(time.perf_counter() - began, MPI.MAX)

    def _labels(self, part: Part) -> Labels:
        order, backend = self.local.order, self.backend
        host, split = part.labels[order], part.split[order]
        used = split == TRAIN
        if host.ndim == 1:
            used &= host >= 0
            train = np.where(used, host, -1).astype(np.int32)
        else:
            train = np.ascontiguousarray(host, np.uint8)
        n_train = self.comm.allreduce(int(used.sum()))
        return Labels(host, split, backend.from_host(train), backend.from_host(used.astype(np.uint8)), n_train)

    def _inputs(self, part: Part, precompute: bool) -> Inputs:
        order = self.local.order
        if isinstance(part.features, SparseRows) and not precompute:
            return Inputs(self.ids, sparse=part.features.take(order))
        dense = part.features.to_dense() if isinstance(part.features, SparseRows) else part.features
        rows = self.backend.zeros((len(order), dense.shape[1]))
        self.backend.copy(np.ascontiguousarray(dense[order], self.backend.dtype), rows)
        return Inputs(self.ids, dense=rows, aggregated=self._aggregate_once(rows) if precompute else None)

    def _aggregate_once(self, rows):
        """A @ rows, exactly: layer 1's aggregation of every epoch to come."""
        target = Field.of("aggregated input", self.backend.zeros(rows.shape))
        source = Field.of("input", rows)
        once = Model(self.shape, self.parameters, [[], []], [Hop(0, source, target)], target, [])
        strategy, context = self._strategy(once, None), PassContext(self.seed, 0, False)
        for block in strategy.blocks:
            strategy.evaluation[0].push(block, context)
        for _ in strategy.evaluation[0].pull(context):
            pass
        strategy.close()
        return target.value

    # -- passes -------------------------------------------------------------------------------------------------------
    def _forward(self, aggregations, context: PassContext):
        """Rows in, complete rows out: the whole forward pass, for every strategy."""
        model, hops = self.model, len(self.model.hops)
        for rows in self.strategy.blocks:
            model.forward(0, rows, context)
            if hops:
                aggregations[0].push(rows, context)
        for k, aggregation in enumerate(aggregations):
            for rows in aggregation.pull(context):
                model.forward(k + 1, rows, context)
                if k + 1 < hops:
                    aggregations[k + 1].push(rows, context)

    def _backward(self, context: PassContext):
        """Gradients of the logits in, parameter gradients added up."""
        model, aggregations = self.model, self.strategy.backward
        for rows in self.strategy.blocks:
            if rows in self.strategy.idle_blocks:
                model.clear(len(aggregations), rows)
                self._push_gradient(len(aggregations), rows, context)
            else:
                self._backward_block(len(aggregations), rows, context)
        for k in reversed(range(len(aggregations))):
            if aggregations[k] is None:
                return
            for rows in aggregations[k].pull(context):
                self._backward_block(k, rows, context)

    def _backward_block(self, number: int, rows, context: PassContext):
        self.model.backward(number, rows, context)
        if self.blocking:
            self.model.weight_gradients(number, rows, context)
        self._push_gradient(number, rows, context)
        if not self.blocking:                            # others wait for what was pushed, nobody for this
            self.model.weight_gradients(number, rows, context)

    def _push_gradient(self, number: int, rows, context: PassContext):
        aggregation = self.strategy.backward[number - 1] if number else None
        if aggregation is not None:
            aggregation.push(rows, context)

    def train_pass(self, epoch: int) -> float:
        """Forward, loss, backward; gradients are this rank's share. Returns this rank's sum of the losses of train nodes."""
        context = PassContext(self.seed, epoch, True)
        self._forward(self.strategy.forward, context)
        self.parameters.zero_grad()
        loss = self._loss()
        self._backward(context)
        return loss

    def _loss(self) -> float:
        logits, labels = self.model.logits, self.labels
        scale = 1.0 / max(labels.n_train, 1)
        if labels.multilabel:
            return self.backend.sigmoid_cross_entropy(logits.value, labels.train, labels.row_used, scale, logits.grad)
        return self.backend.softmax_cross_entropy(logits.value, labels.train, scale, logits.grad)

    def evaluate(self):
        """Exact logits of the local rows with the current parameters, on the backend."""
        self._forward(self.strategy.evaluation, PassContext(self.seed, 0, False))
        return self.model.logits.value

    def close(self):
        """Free what MPI holds."""
        self.strategy.close()
