"""The training loop: the same on every rank, with the same decisions at every epoch boundary."""

from __future__ import annotations

import math
import socket
import sys
import time

import numpy as np

from hpcgcn.config import Config, to_toml
from hpcgcn.errors import ConfigError, DivergedError, GraphError
from hpcgcn.exchange.policies import make_policies
from hpcgcn.graph.data import TRAIN, Part, SparseRows
from hpcgcn.graph.local import restrict
from hpcgcn.mpi.world import agree
from hpcgcn.mpi.progress import sum_in_place
from hpcgcn.nn.models import Shape, parameter_specs
from hpcgcn.nn.parameters import Adam, Parameters, clip_gradient
from hpcgcn.train import checkpoint
from hpcgcn.train.accounting import EpochLedger, exchange_columns
from hpcgcn.train.checkpoint import Best, Snapshot
from hpcgcn.train.engine import Engine
from hpcgcn.train.folder import MetricsFile, RunFolder
from hpcgcn.train.scores import scores
from hpcgcn.train.source import sparse_ranks


def model_shape(config: Config, part: Part) -> Shape:
    """The model that the settings mean for this graph."""
    choose = {"yes": True, "no": False}
    return Shape(config.model, part.n_features, part.n_classes, config.layers, config.hidden, config.linear_layers,
                 norm=choose.get(config.norm, config.model == "sage"), dropout=config.dropout, alpha=config.alpha,
                 lambda_=config.lambda_, self_loops=choose.get(config.self_loops, config.model != "sage"))


def precomputes(config: Config, part: Part) -> bool:
    """Is layer 1's aggregation done once, at start?"""
    if config.model not in ("gcn", "sage"):
        return False
    return {"yes": True, "no": False}.get(config.precompute, not isinstance(part.features, SparseRows))


def learning_rate(config: Config, epoch: int) -> float:
    """The learning rate of an epoch: warm-up, then constant or half a cosine."""
    if epoch < config.warmup:
        return config.lr * (epoch + 1) / config.warmup
    if config.lr_schedule == "cosine":
        done = (epoch - config.warmup) / max(config.epochs - config.warmup, 1)
        return config.lr * 0.5 * (1.0 + math.cos(math.pi * done))
    return config.lr


class Trainer:
    """A model, its graph and its optimiser on this rank."""

    def __init__(self, comm, backend, part: Part, config: Config):
        self.comm, self.backend, self.config = comm, backend, config
        if config.parallel == "single" and comm.size > 1:
            raise ConfigError(f"parallel = 'single' is for one rank, but {comm.size} were started: each would see only its own "
                              f"part; leave it 'auto', or start one rank")
        shape = model_shape(config, part)
        self.parameters = Parameters(backend, parameter_specs(shape), config.seed)
        decay = config.weight_decay
        self.optimiser = Adam(self.parameters, weight_decay={
            "dense": decay, "conv": decay if config.weight_decay_conv < 0 else config.weight_decay_conv})
        parallel = config.parallel if config.parallel != "auto" else "single" if comm.size == 1 else "partition"
        common = {"seed": config.seed, "parallel": parallel, "precision": config.precision, "blocking": config.blocking,
                  "precompute": precomputes(config, part), "n_blocks": config.feature_blocks or 4,
                  "n_sparse": sparse_ranks(config, comm.size)}
        training_part = restrict(comm, part, part.split == TRAIN) if config.inductive else part
        self.engine = Engine(comm, backend, training_part, shape, self.parameters, make_policies=self._policies, **common)
        if self.engine.labels.n_train == 0:
            raise GraphError("the graph has no labelled training nodes: `hpcgcn info` shows its splits; "
                             "another split may be chosen with --split-index")
        self.evaluator = Engine(comm, backend, part, shape, self.parameters, **common) if config.inductive else self.engine
        self.rate = self.engine.policies.rate
        self.best = Best()
        self.epoch = 0                       # epochs done

    def _policies(self, engine: Engine):
        """Training's exchange policies, once the hops and the number of rows that travel are known."""
        rows = engine.comm.allreduce(engine.local.rows_sent)
        widths = [(hop.number, hop.source.width) for hop in engine.model.hops]
        widths += [(hop.number, hop.source.width) for hop in engine.model.hops if hop.source.grad is not None]
        return make_policies(self.config, rows, widths, self.backend.dtype.itemsize, engine.comm.size)

    # -- one epoch ----------------------------------------------------------------------------------------------------
    def run_epoch(self, stop_wanted: bool = False) -> tuple[float, bool, float]:
        """One step of training. Returns (loss, does any rank want to stop, seconds in all-reduces)."""
        epoch = self.epoch
        loss_sum = self.engine.train_pass(epoch)
        self.backend.synchronize()
        began = time.perf_counter()
        agreed = np.array([loss_sum, float(stop_wanted)])
        gradient = self.backend.to_host(self.parameters.grad)        # the array itself where MPI can read it
        sum_in_place(self.comm, agreed, gradient)
        self.backend.copy(gradient, self.parameters.grad)
        waited = time.perf_counter() - began
        loss = float(agreed[0]) / self.engine.labels.n_train
        if not math.isfinite(loss):
            raise DivergedError(f"the loss is {loss} in epoch {epoch}: training diverged; lower lr (now {self.config.lr:g}), "
                                f"or limit the gradient with clip (now {self.config.clip:g})")
        if self.config.clip:
            clip_gradient(self.parameters, self.config.clip)
        self.optimiser.update(learning_rate(self.config, epoch))
        self.rate.observe(loss)
        self.epoch += 1
        return loss, bool(agreed[1]), waited

    def evaluate(self) -> dict[str, float]:
        """Exact scores of the three splits with the current parameters."""
        engine = self.evaluator
        logits = self.backend.to_host(engine.evaluate())
        return scores(self.comm, logits, engine.labels.host, engine.labels.split)

    def remember_best(self, found: dict[str, float]):
        """Keep the parameters with the highest validation score (or, without a validation split, the newest)."""
        if found["val"] > self.best.val or math.isnan(found["val"]):
            self.best = Best(self.epoch - 1, found["val"], found["test"],
                             np.array(self.backend.to_host(self.parameters.value)))

    # -- checkpoints --------------------------------------------------------------------------------------------------
    def save(self, folder: RunFolder):
        """Write a checkpoint. Collective."""
        p, host = self.parameters, self.backend.to_host
        snapshot = Snapshot(self.epoch, np.array(host(p.value)), np.array(host(p.m)), np.array(host(p.v)), p.step, self.best,
                            self.rate.state(), self.comm.size)
        exchanges = {name: exchange.state() for name, exchange in self.engine.strategy.named_exchanges().items()}
        checkpoint.save(self.comm, folder.checkpoints, snapshot, p.specs, exchanges, self.config, " ".join(sys.argv),
                        self.config.keep)

    def restore(self, path: str) -> str:
        """Go on from a checkpoint folder; returns a note for the user, or "". Collective."""
        with agree(self.comm):
            snapshot = checkpoint.load(path)
            checkpoint.fit(snapshot, self.parameters.size, path)
        p = self.parameters
        for name, array in (("parameters", p.value), ("m", p.m), ("v", p.v)):
            self.backend.copy(np.ascontiguousarray(getattr(snapshot, name), self.backend.dtype), array)
        p.step, self.epoch, self.best = snapshot.step, snapshot.epoch, snapshot.best
        if snapshot.rate_state:
            self.rate.restore(snapshot.rate_state)
        return self._restore_exchanges(path)

    def _restore_exchanges(self, path: str) -> str:
        with agree(self.comm):
            states = checkpoint.load_exchanges(path, self.comm.rank, self.comm.size) or {}
        exchanges = self.engine.strategy.named_exchanges()
        misfits = sum(not exchange.fits(states.get(name, {})) for name, exchange in exchanges.items())
        if self.comm.allreduce(misfits):
            for exchange in exchanges.values():
                exchange.start_anew()
            return (f"{path} holds no exchange state for these {self.comm.size} parts and settings: parameters go on as they "
                    f"were, stale rows and feedback start anew")
        for name, exchange in exchanges.items():
            exchange.restore(states.get(name, {}))
        return ""

    def close(self):
        """Free what MPI holds."""
        self.engine.close()
        if self.evaluator is not self.engine:
            self.evaluator.close()


def metrics_file(trainer: Trainer, folder: RunFolder) -> MetricsFile | None:
    """The metrics file, on rank 0."""
    if trainer.comm.rank:
        return None
    return MetricsFile(folder.metrics_path, exchange_columns(trainer.engine.strategy.exchanges), trainer.epoch)


def describe(trainer: Trainer) -> dict:
    """What was trained on what, for the summary."""
    local, strategy = trainer.engine.local, trainer.engine.strategy
    sums = trainer.comm.allreduce(np.array([local.n_owned, local.n_halo, local.n_entries]))
    return {"nodes": int(sums[0]), "halo_rows": int(sums[1]), "matrix_entries": int(sums[2]), "ranks": trainer.comm.size,
            "hosts": trainer.comm.allgather(socket.gethostname()),
            "work": trainer.comm.allgather((strategy.role, strategy.multiply_adds())),
            "parameters": trainer.parameters.size, **trainer.backend.describe(), "config": to_toml(trainer.config)}


__all__ = ["EpochLedger", "Trainer", "describe", "learning_rate", "metrics_file", "model_shape"]
