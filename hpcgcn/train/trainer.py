"""The training loop: the same on every rank, with the same decisions at every epoch boundary."""

from __future__ import annotations

import math
import socket
import sys
import time
from typing import Any, NamedTuple

import numpy as np

from hpcgcn.config import Config, to_toml
from hpcgcn.config.metric_names import chosen_metric
from hpcgcn.errors import GraphError
from hpcgcn.exchange.per_hop import HopFacts
from hpcgcn.exchange.policies import make_policies
from hpcgcn.graph.data import SPLIT_NAMES, TEST, TRAIN, VAL, Part, SparseRows
from hpcgcn.mpi.runtime import Runtime
from hpcgcn.mpi.world import collective_errors
from hpcgcn.nn.models import Shape, parameter_specs, precomputes_input
from hpcgcn.nn.parameters import clip_gradient, initialised, make_optimiser
from hpcgcn.parallel import make_strategy
from hpcgcn.trace.recorder import traced
from hpcgcn.train import checkpoint
from hpcgcn.train.accounting import EpochLedger
from hpcgcn.train.checkpoint import Best, Snapshot
from hpcgcn.train.divergence import check_parameters, explain_divergence, quiet_overflow
from hpcgcn.train.exchange_errors import ExchangeErrors
from hpcgcn.train.folder import RunFolder
from hpcgcn.train.metrics import MetricsFile
from hpcgcn.train.scores import scores


def model_shape(config: Config, part: Part) -> Shape:
    """The model that the settings mean for this graph."""
    return Shape.of(config, part.n_features, part.n_classes)


def precomputes(config: Config, part: Part) -> bool:
    """Is layer 1's aggregation done once, at start?"""
    return precomputes_input(config, isinstance(part.features, SparseRows))


def learning_rate(config: Config, epoch: int) -> float:
    """The learning rate of an epoch: warm-up, then constant or half a cosine."""
    if epoch < config.warmup:
        return config.lr * (epoch + 1) / config.warmup
    if config.lr_schedule == "cosine":
        done = (epoch - config.warmup) / max(config.epochs - config.warmup, 1)
        return config.lr * 0.5 * (1.0 + math.cos(math.pi * done))
    return config.lr


def check_patience(comm, config: Config, part: Part):
    """Refuse early stopping without a validation score to watch. Collective."""
    labelled = part.split == VAL
    if part.labels.ndim == 1:
        labelled &= part.labels >= 0
    if config.patience > 0 and not comm.allreduce(int(labelled.sum())):
        raise GraphError(f"patience = {config.patience} waits for a better validation score, but "
                         "the graph has no labelled validation nodes: import it with a split that "
                         "has some, or leave --patience out")


class Evaluator(NamedTuple):
    """An engine, and the splits whose scores it gives."""

    engine: Any
    splits: tuple[str, ...]


ALL_SPLITS = tuple(SPLIT_NAMES.values())


class Trainer:
    """A model, its graph and its optimiser on this rank."""

    def __init__(self, runtime: Runtime, backend, part: Part, config: Config,
                 chosen: dict | None = None, strategy=None):
        """chosen: what an earlier start of this run chose by measuring.

        strategy: the one that has loaded the part; made from the settings if it is not given.
        """
        self.runtime, self.comm, self.backend, self.config = runtime, runtime.comm, backend, config
        self.strategy = strategy or make_strategy(runtime, config)
        self.strategy.choices.update(chosen or {})
        self.shape = model_shape(config, part)
        self.parameters = self.strategy.make_parameters(
            backend, initialised(parameter_specs(self.shape), config.initialisation))
        training_part = part
        if config.inductive:
            training_part = self.strategy.subgraph(part, part.split == TRAIN)
        self.engine = self._engine(training_part, part, self._policies)
        if self.engine.labels.n_train == 0:
            raise GraphError("the graph has no labelled training nodes: `hpcgcn info` shows its "
                             "splits; another split may be chosen with --split-index")
        chosen_metric(config.metric, part.multilabel, part.n_classes)    # or it is refused
        check_patience(self.comm, config, part)
        self.evaluators = self._evaluators(part)
        self.owner = self.strategy.sharding(self.parameters)
        self.optimiser = make_optimiser(config, self.parameters)
        self.errors = ExchangeErrors(self.comm, self.engine.aggregations.exchanges)
        for hop, direction, exchange in self.engine.aggregations.exchanges:
            exchange.marks = runtime.trace.exchange(hop, direction)
        self.best = Best()
        self.epoch = 0                       # epochs done

    def _engine(self, part: Part, whole: Part, make_policies=None):
        """What runs the model over a part of the graph, or of a subgraph of it."""
        return self.strategy.make_engine(self.backend, part, self.shape, self.parameters,
                                         precompute=precomputes(self.config, whole),
                                         make_policies=make_policies)

    def _evaluators(self, part: Part) -> list[Evaluator]:
        """Who gives the score of which splits.

        Of an inductive run, validation must know as little of the test nodes as training did: it
        chooses among models before there are any.
        """
        if not self.config.inductive:
            return [Evaluator(self.engine, ALL_SPLITS)]
        keep = part.split != TEST
        if not self.comm.allreduce(int((~keep).sum())):
            return [Evaluator(self._engine(part, part), ALL_SPLITS)]
        before = self._engine(self.strategy.subgraph(part, keep), part)
        return [Evaluator(before, ("train", "val")),
                Evaluator(self._engine(part, part), ("test",))]

    def _policies(self, engine):
        """Training's exchange policies, once the hops and the number of halo rows are known."""
        hops = engine.model.hops
        rows = [engine.comm.allreduce(self.strategy.rows_sent(engine.local, hop.number))
                for hop in hops]
        facts = [HopFacts(hop.number, hop.source.width, sent, hop.transformed,
                          hop.source.wants_gradient, last=hop is hops[-1])
                 for hop, sent in zip(hops, rows)]
        return make_policies(self.config, facts, self.backend.dtype.itemsize,
                             self.runtime.comm.size)

    @property
    def rates(self):
        """The rate schedules of training's exchanges."""
        return self.engine.policies.rates

    # -- one epoch ---------------------------------------------------------------------------------
    @traced("epoch")
    @quiet_overflow
    def run_epoch(self, stop_wanted: bool = False) -> tuple[float, bool, float]:
        """One step of training.

        Returns (loss, does any rank want to stop, seconds in all-reduces).
        """
        epoch = self.epoch
        loss_sum = self.engine.train_pass(epoch)
        self.backend.synchronize()
        began = time.perf_counter()
        summed = np.array([loss_sum, float(stop_wanted), *self.errors.sums()])
        self.owner.sum(summed)
        waited = time.perf_counter() - began
        loss = float(summed[0]) / self.engine.labels.total_weight
        if not math.isfinite(loss):
            raise explain_divergence(self, loss)
        if self.config.clip:
            clip_gradient(self.parameters, self.config.clip, self.owner.everywhere)
        self.engine.model.remember()
        self.runtime.trace.switch(self.runtime.trace.activity("optimiser"))
        self.optimiser.update(learning_rate(self.config, epoch))
        self.rates.observe(loss)
        self.errors.take_sums(summed[2:])
        self.epoch += 1
        return loss, bool(summed[1]), waited

    @traced("evaluation")
    @quiet_overflow
    def evaluate(self) -> dict[str, float]:
        """Exact scores of the three splits with the current parameters."""
        scored: dict[str, float] = {}
        for engine, splits in self.evaluators:
            logits = self.backend.to_host(engine.evaluate())
            reached = scores(self.comm, logits, engine.labels.host, engine.labels.split,
                             self.metric)
            scored |= {name: reached[name] for name in splits}
        return scored

    def remember_best(self, scored: dict[str, float]):
        """Keep the parameters with the highest validation score (or, without a validation split,
        the newest)."""
        if scored["val"] > self.best.val or math.isnan(scored["val"]):
            self.best = Best(self.epoch, scored["val"], scored["test"],
                             self.owner.whole(self.parameters.value))

    @property
    def metric(self) -> str:
        """What scores are."""
        return chosen_metric(self.config.metric, self.engine.labels.multilabel,
                             self.shape.n_classes)

    @property
    def out_of_patience(self) -> bool:
        """Has the validation score been no better for as long as the settings wait?

        Known from the best epoch, which is in the checkpoint: a resumed run stops at the same
        epoch.
        """
        waited = self.epoch - self.best.epoch
        return 0 < self.config.patience <= waited and self.best.epoch > 0

    # -- checkpoints -------------------------------------------------------------------------------
    @traced("checkpoint")
    def save(self, folder: RunFolder):
        """Write a checkpoint. Collective."""
        p, whole = self.parameters, self.owner.whole
        snapshot = Snapshot(self.epoch, whole(p.value), whole(p.m), whole(p.v), p.step, self.best,
                            self.rates.state(), self.comm.size, self.engine.labels.multilabel)
        with collective_errors(self.comm):
            if self.comm.rank == 0:              # others may not hold the whole
                check_parameters(snapshot.parameters, self.epoch)
        exchanges = {name: exchange.state()
                     for name, exchange in self.engine.aggregations.named_exchanges().items()}
        checkpoint.save(self.comm, folder.checkpoints, snapshot, self.owner.specs, exchanges,
                        self.config, " ".join(sys.argv), self.config.keep)

    def restore(self, path: str) -> str:
        """Go on from a checkpoint folder; returns a note for the user, or "". Collective."""
        with collective_errors(self.comm):
            snapshot = checkpoint.load(path)
            checkpoint.fit(snapshot, self.owner.size, path)
            before = checkpoint.load_config(path).optimiser
        p = self.parameters
        # The moments of Adam and the momentum of SGD are not each other's.
        anew = (before == "sgd") != (self.config.optimiser == "sgd")
        kept = ["parameters"] if anew else ["parameters", "m", "v"]
        for name, array in zip(kept, (p.value, p.m, p.v)):
            self.backend.copy(np.ascontiguousarray(self.owner.own(getattr(snapshot, name)),
                                                   self.backend.dtype), array)
        p.step, self.epoch, self.best = 0 if anew else snapshot.step, snapshot.epoch, snapshot.best
        if snapshot.rate_state:
            self.rates.restore(snapshot.rate_state)
        notes = [f"{self.config.optimiser} starts anew after {before}"] if anew else []
        return "; ".join([*notes, *filter(None, [self._restore_exchanges(path)])])

    def _restore_exchanges(self, path: str) -> str:
        with collective_errors(self.comm):
            states = checkpoint.load_exchanges(path, self.comm.rank, self.comm.size) or {}
        exchanges = self.engine.aggregations.named_exchanges()
        misfits = sum(not exchange.fits(states.get(name, {}))
                      for name, exchange in exchanges.items())
        if self.comm.allreduce(misfits):
            for exchange in exchanges.values():
                exchange.start_anew()
            return (f"{path} holds no exchange state for these {self.comm.size} parts and "
                    "settings: parameters go on as they were, stale rows and feedback start anew")
        for name, exchange in exchanges.items():
            exchange.restore(states.get(name, {}))
        return ""

    def close(self):
        """Free what MPI holds."""
        self.engine.close()
        for engine, _ in self.evaluators:
            if engine is not self.engine:
                engine.close()


def metrics_file(trainer: Trainer, folder: RunFolder, ledger: EpochLedger) -> MetricsFile | None:
    """The metrics file, on rank 0."""
    if trainer.comm.rank:
        return None
    columns = [*trainer.strategy.metric_columns, *ledger.columns, *trainer.errors.columns]
    return MetricsFile(folder.metrics_path, columns, trainer.epoch)


def describe(trainer: Trainer) -> dict:
    """What was trained on what, for the summary."""
    local, aggregations = trainer.engine.local, trainer.engine.aggregations
    sums = trainer.comm.allreduce(np.array([local.n_owned, local.n_halo,
                                            local.n_entries])) // trainer.strategy.copies
    return {"nodes": int(sums[0]), "halo_rows": int(sums[1]), "matrix_entries": int(sums[2]),
            "ranks": trainer.comm.size, "hosts": trainer.comm.allgather(socket.gethostname()),
            "work": trainer.comm.allgather((aggregations.role, aggregations.multiply_adds())),
            **trainer.strategy.facts(trainer.engine), "parameters": trainer.owner.size,
            **trainer.backend.describe(), "config": to_toml(trainer.config)}


__all__ = ["EpochLedger", "Trainer", "describe", "learning_rate", "metrics_file", "model_shape"]
