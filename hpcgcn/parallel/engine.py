"""A model over one graph on this rank, driven through a strategy's aggregations."""

from __future__ import annotations

import logging

from hpcgcn.graph.data import SparseRows
from hpcgcn.nn.fields import Field
from hpcgcn.nn.models import Hop, Model, Shape, build_model
from hpcgcn.nn.pass_memory import PassMemory
from hpcgcn.nn.steps import PassContext
from hpcgcn.parallel.needed import EVALUATED, model_depth
from hpcgcn.parallel.rows import local_inputs, local_labels
from hpcgcn.trace.recorder import PassMarks

log = logging.getLogger(__name__)


class Engine:
    """Runs a model over one graph, forward and backward. Engines may share parameters.

    For all strategies in which rows go through the whole model on one rank: they differ in their
    aggregations alone.
    """

    def __init__(self, strategy, backend, part, shape: Shape, parameters, *, precompute: bool,
                 make_policies=None):
        """precompute: aggregate the input once. make_policies(engine): for training's exchanges."""
        self.strategy, self.comm, self.backend = strategy, strategy.runtime.comm, backend
        self.parameters, self.seed = parameters, strategy.config.seed
        # Weight gradients after the messages: others wait for these, nobody for them.
        self.overlaps = not strategy.config.blocking
        depth = (model_depth(shape, sparse=isinstance(part.features, SparseRows),
                             precomputed=precompute) if make_policies else EVALUATED)
        self.local = strategy.local_graph(part, shape.self_loops, depth)
        if make_policies and self.comm.rank == 0:
            warn_of_unread_weights(part, shape)
        self.labels = local_labels(self.comm, backend, part, self.local.order,
                                   strategy.config.class_weights)
        ids = backend.from_host(self.local.ids)

        def aggregate(rows):
            return aggregate_once(strategy, backend, self.local, shape, parameters, rows)

        inputs = local_inputs(backend, part, self.local.order, ids,
                              aggregate if precompute else None)
        self.model = build_model(backend, shape, parameters, self.local.n_owned, inputs)
        n_needed = self.local.needed.count if strategy.moves_rows else None
        self.memory = PassMemory(backend, self.model, n_needed)
        self.marks = PassMarks(strategy.runtime.trace, len(self.model.hops))
        # Training's exchanges depend on the hops' widths and the number of halo rows: known only
        # now.
        self.policies = make_policies(self) if make_policies else None
        self._queue = (backend.repeated(self._queue_pass) if make_policies and strategy.repeats
                       else lambda epoch, places: self._queue_pass(epoch))
        self.aggregations = strategy.training_aggregations(self)

    # -- passes ------------------------------------------------------------------------------------
    def _forward(self, aggregations, context: PassContext):
        """Rows in, complete rows out: the whole forward pass, for every strategy."""
        model, hops = self.model, len(self.model.hops)
        complete = (self.aggregations.needed_blocks(0) if context.training
                    else self.aggregations.blocks)
        for k in range(hops + 1):
            complete = self.marks.forward(k, complete)
            for rows in model.forward(k, complete, context, self.strategy.runtime.sum_in_place):
                if k < hops:
                    aggregations[k].push(rows, context)
            if k < hops:
                complete = aggregations[k].pull(context)

    def _backward(self, context: PassContext):
        """Gradients of the logits in, parameter gradients added up."""
        aggregations = self.aggregations.backward
        self._backward_block(len(aggregations), self.aggregations.needed_blocks(len(aggregations)),
                             context)
        for k in reversed(range(len(aggregations))):
            aggregation = aggregations[k]
            if aggregation is None:
                return
            self._clear(k + 1)
            self._backward_block(k, aggregation.pull(context), context)

    def _clear(self, number: int):
        """Zero the gradients that a block has not overwritten and that earlier ones add to: those
        of the rows that it was not run on."""
        first = self.aggregations.n_needed(number)
        for field, lowest in self.model.shared_gradients[number]:
            self._zero(field.grad[first:self.aggregations.n_needed(lowest)])

    def _zero(self, rows):
        if len(rows):
            self.backend.clear(rows)

    def _backward_block(self, number: int, blocks, context: PassContext):
        blocks = self.marks.backward(number, blocks)
        add_up = self.strategy.runtime.sum_in_place
        for rows in self.model.backward(number, blocks, context, add_up):
            if not self.overlaps:
                self._weight_gradients(number, rows, context)
            self._push_gradient(number, rows, context)
            if self.overlaps:
                self._weight_gradients(number, rows, context)

    def _weight_gradients(self, number: int, rows, context: PassContext):
        self.marks.weights(number)
        self.model.weight_gradients(number, rows, context)

    def _push_gradient(self, number: int, rows, context: PassContext):
        aggregation = self.aggregations.backward[number - 1] if number else None
        if aggregation is not None:
            aggregation.push(rows, context)

    def train_pass(self, epoch: int) -> float:
        """Forward, loss, backward; gradients are this rank's share.

        Returns this rank's sum of the losses of train nodes.
        """
        self.memory.use_training()
        return float(self._queue(epoch, self.memory.places))    # until here the host ran ahead

    def _queue_pass(self, epoch: int):
        """The same without waiting for a device."""
        context = PassContext(self.seed, epoch, True)
        self._forward(self.aggregations.forward, context)
        self.parameters.zero_grad()
        logits = self.model.logits
        self.marks.loss()
        n_rows = self.aggregations.n_in_loss()
        loss = self.labels.loss(self.backend, logits.value, logits.grad, slice(0, n_rows))
        self._zero(logits.grad[n_rows:self.aggregations.n_needed(len(self.model.hops))])
        self._backward(context)
        return loss

    def evaluate(self, embeddings: bool = False):
        """Exact logits of the local rows with the current parameters, on the backend.

        embeddings: can those of the model be read until the next pass?
        """
        self.memory.use_evaluation(embeddings)
        self._forward(self.aggregations.evaluation, PassContext(self.seed, 0, False))
        return self.model.logits.value

    def close(self):
        """Free what MPI holds."""
        self.aggregations.close()


def warn_of_unread_weights(part, shape: Shape):
    """Tell that the model makes nothing of the graph's edge weights."""
    if part.edge_weights is not None and shape.architecture.attends:
        log.warning("model = '%s' does not read edge weights: it computes its own", shape.model)


def aggregate_once(strategy, backend, local, shape: Shape, parameters, rows):
    """A @ rows, exactly: layer 1's aggregation of every epoch to come. Collective."""
    target = Field.of("aggregated input", backend.zeros(rows.shape))
    source = Field.of("input", rows)
    once = Model(shape, parameters, [[], []], [Hop(0, source, target)], target, [])
    aggregations = strategy.aggregations(backend, local, once)
    context = PassContext(strategy.config.seed, 0, False)
    for block in aggregations.blocks:
        aggregations.evaluation[0].push(block, context)
    for _ in aggregations.evaluation[0].pull(context):
        pass
    aggregations.close()
    return target.value
