"""A whole run: load, train, evaluate, keep.

The same function serves the command line and scripts.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import resource
import time
from dataclasses import dataclass

from hpcgcn.backend import BACKENDS, make_backend
from hpcgcn.config import Config, make_config
from hpcgcn.errors import CheckpointError, ConfigError
from hpcgcn.exchange.describe import hop_lines, idle_staleness
from hpcgcn.graph.data import Graph
from hpcgcn.graph.in_memory import usable_graph
from hpcgcn.logs import named_if_slow, progress, set_console_format, tell
from hpcgcn.mpi.runtime import Runtime
from hpcgcn.mpi.stop import StopRequest
from hpcgcn.mpi.watchdog import Watchdog
from hpcgcn.mpi.world import EXIT_RUN_AGAIN, collective_errors, local_rank, on_root, world
from hpcgcn.parallel import make_strategy
from hpcgcn.trace.window import make_trace
from hpcgcn.train import checkpoint
from hpcgcn.train.accounting import work_by_role
from hpcgcn.train.callback import Callback, CallbackRunner, EpochReport
from hpcgcn.train.folder import RunFolder
from hpcgcn.train.gpu import asks_for_gpu, prepare_gpu
from hpcgcn.train.live import LiveFile
from hpcgcn.train.lock import LockHolder
from hpcgcn.train.messages import closing_lines, unused_settings
from hpcgcn.train.plateau import ChanceWatch, chance_loss, features_are_uneven, remedy
from hpcgcn.train.progress import Progress
from hpcgcn.train.recording import recording
from hpcgcn.train.start import Start, begin, decide
from hpcgcn.train.trackers import Trackers, check_trackers
from hpcgcn.train.trainer import EpochLedger, Trainer, describe, metrics_file

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Result:
    """How a run ended, the same on every rank."""

    folder: str                      # of the run
    summary: dict                    # what summary.json holds
    exit_code: int                   # 0; 75 if it stopped early and wants to be started again


def default_threads(ranks_here: int) -> int:
    """ranks of a host x threads = its cores, within what this process may use."""
    return max(1, min(len(os.sched_getaffinity(0)), (os.cpu_count() or 1) // ranks_here))


def open_backend(strategy):
    """This rank's backend, with a note to the user if it is not the expected one. Collective."""
    comm, config = strategy.runtime.comm, strategy.config
    rank_here, ranks_here = local_rank(comm)
    threads = config.threads or default_threads(ranks_here)
    with collective_errors(comm):
        if config.cuda_graphs and not strategy.repeats:
            raise ConfigError("cuda_graphs is for one rank: with more, an epoch waits for messages "
                              "in between, which cannot be recorded")
        backend, note = make_backend(strategy.backend_name, config.dtype, threads, rank_here,
                                     config.mpi, config.transport, config.cuda_graphs,
                                     config.precision)
    alike = comm.Split(BACKENDS.index(backend.name), comm.rank)     # a strategy may mix backends
    with collective_errors(comm):
        backend.check_ranks(alike, comm.rank)
    alike.Free()
    strategy.runtime.engine.device_memory = any(comm.allgather(backend.sends_device_memory))
    if note and comm.rank == 0:
        log.warning("%s", note)
    return backend


def train_model(source: str | os.PathLike | Graph, config: Config | dict | None = None, comm=None,
                *, callback: Callback | None = None) -> Result:
    """Train on a graph file, a partition file, or (one rank) a Graph in memory.

    config: a Config, or settings {key: value}. callback: gets an EpochReport after every epoch, on
    every rank that gives one. Collective over `comm` (default: all ranks); every rank gets the same
    result.
    """
    if comm is None:
        if asks_for_gpu(config):
            prepare_gpu()
        comm = world()
    with collective_errors(comm):
        config = config if isinstance(config, Config) else make_config(config)
        source = _checked_source(source)
    # Arrays of an earlier run of this process hang in cycles, and few objects do not make Python
    # look.
    gc.collect()
    with collective_errors(comm):
        runtime = Runtime(comm, ranks_per_host=config.ranks_per_host,
                          trace=make_trace(config.trace))
    with Watchdog(comm, config.output, config.stall_timeout,
                  runtime.heartbeat) as watchdog, runtime:
        return _train(source, config, runtime, watchdog, callback)


def _checked_source(source) -> str | Graph:
    """A path, or a graph in memory that can be trained on."""
    if isinstance(source, Graph):
        return usable_graph(source)
    if not isinstance(source, (str, os.PathLike)):
        raise ConfigError(f"cannot train on a {type(source).__name__}: expected the path of a "
                          "graph or partition file, or a Graph; write_graph and `hpcgcn import` "
                          "make files")
    return os.fspath(source)


def _train(source, config: Config, runtime: Runtime, watchdog: Watchdog,
           callback: Callback | None) -> Result:
    comm = runtime.comm
    set_console_format(config.log_format)
    on_root(comm, check_trackers, config)
    with LockHolder() as lock:           # rank 0 holds it for the job
        start = on_root(comm, decide, config, source, lock)
        _note(comm, start.notes)
        if start.kind == "finished":
            if comm.rank == 0:
                progress.info("%s is finished (%d epochs): nothing to do", start.path,
                              start.summary["epochs"])
            return Result(start.path, start.summary, 0)
        trainer, uneven = _set_up(source, config, runtime, watchdog, start)
        say = _printer(comm, config)
        _tell_exchanges(trainer, say)
        if start.kind == "resume":
            _resume(trainer, start.path, say)
        # Nothing is written before this: a command that is refused leaves no trace.
        _note(comm, on_root(comm, begin, start, config, trainer.strategy.choices, lock))
        with Trackers(config, start.path, comm.rank == 0) as trackers:
            runner = CallbackRunner(comm, trackers.and_then(callback))
            folder = RunFolder(start.path)
            with recording(runtime, folder, trainer.engine.aggregations):
                result = _run(trainer, folder, lock, watchdog, runner, uneven)
            trackers.summary = result.summary
        trainer.close()
        return result


def _set_up(source, config: Config, runtime: Runtime, watchdog: Watchdog,
            start: Start) -> tuple[Trainer, bool]:
    """(trainer, are its features of very different scale?)"""
    comm = runtime.comm
    watchdog.where = "reading its part"
    with collective_errors(comm):
        strategy = make_strategy(runtime, config)
    words = source if isinstance(source, str) else "the graph"
    with named_if_slow(log, f"reading {words} on {comm.size} ranks", comm.rank == 0):
        part = strategy.load(source)
    watchdog.where = "setting up"
    backend = open_backend(strategy)
    unused = unused_settings(config, comm.size)
    if unused:
        log.warning("%s", unused)
    with (collective_errors(comm),
          named_if_slow(log, "setting up the model and its exchanges", comm.rank == 0)):
        trainer = Trainer(runtime, backend, part, config, start.choices, strategy)
    return trainer, features_are_uneven(comm, part)


def _tell_exchanges(trainer: Trainer, say):
    """What is sent stale or compressed, hop by hop."""
    policies, comm = trainer.engine.policies, trainer.comm
    if comm.size == 1:
        return
    for line in hop_lines(policies):
        say(line)
    _note(comm, [note] if (note := idle_staleness(policies)) else [])


def _note(comm, notes: list[str]):
    for note in notes if comm.rank == 0 else ():
        log.warning("%s", note)


def _printer(comm, config: Config):
    def say(text: str):
        if comm.rank == 0 and not config.quiet:
            progress.info("%s", text)
    return say


def _checkpoint_to_resume(folder: str, config: Config) -> str | None:
    path = checkpoint.newest(RunFolder(folder).checkpoints)
    if path is None and config.resume == "must":
        raise CheckpointError(f"--resume: there is no checkpoint in {folder} that can be read; "
                              "--resume auto begins anew")
    return path


def _resume(trainer: Trainer, folder: str, say):
    config, comm = trainer.config, trainer.comm
    path = on_root(comm, _checkpoint_to_resume, folder, config)
    if path is None:
        return
    note = trainer.restore(path)
    say(f"resuming from {path}: {trainer.epoch} epochs done" + (f"; {note}" if note else ""))


def _run(trainer: Trainer, folder: RunFolder, lock: LockHolder, watchdog: Watchdog,
         callback: CallbackRunner, uneven: bool) -> Result:
    """The epochs, with evaluation, metrics and checkpoints between them."""
    config, comm = trainer.config, trainer.comm
    began = time.perf_counter()
    ledger = EpochLedger(comm, trainer.engine.aggregations.exchanges)
    with collective_errors(comm):
        metrics = metrics_file(trainer, folder, ledger)
    _note(comm, [metrics.note] if metrics and metrics.note else [])
    chance = ChanceWatch(chance_loss(comm, trainer.engine.labels, trainer.shape.n_classes))
    stopped = False
    scores: dict[str, float] = {}            # of the last epoch, if it was evaluated
    shown, live = Progress(config, comm.rank == 0), LiveFile(folder, config.epochs, ledger)
    with StopRequest() as request, watchdog.impatient(), contextlib.closing(shown):
        while trainer.epoch < config.epochs and not stopped and not trainer.out_of_patience:
            late = config.time_limit and time.perf_counter() - began > 60 * config.time_limit
            epoch_began = time.perf_counter()
            watchdog.where = f"epoch {trainer.epoch + 1}"
            trainer.runtime.heartbeat.beat()
            rate = trainer.rates.common.rate(trainer.epoch)
            ledger.reset()
            loss, stopped, allreduce = trainer.run_epoch(bool(request.received or late))
            seconds = time.perf_counter() - epoch_began
            shown.epoch_done(trainer.epoch, seconds)
            warning = chance.observe(loss)
            if warning and comm.rank == 0:
                log.warning("%s; %s", warning, remedy(trainer.strategy, uneven))
            row = ledger.collect(seconds, allreduce, rate)
            last = trainer.epoch == config.epochs
            scores = {}
            scheduled = last or (config.eval_every and trainer.epoch % config.eval_every == 0)
            if scheduled or stopped:
                scores = trainer.evaluate()
                if scheduled:        # else an interrupted run would differ from one that was not
                    trainer.remember_best(scores)
                shown.evaluated(trainer.epoch, loss, scores)
            if metrics and row is not None:          # on rank 0
                live.update(trainer.epoch)
                metrics.write({"epoch": trainer.epoch, "loss": loss,
                               **{k: v for k, v in scores.items() if v == v}, **row,
                               **trainer.errors.row(),
                               **trainer.strategy.epoch_metrics(trainer.engine, row)})
            if last or stopped or trainer.out_of_patience or (
                    config.checkpoint_every and trainer.epoch % config.checkpoint_every == 0):
                watchdog.where = f"checkpoint after epoch {trainer.epoch}"
                on_root(comm, lock.check)
                on_root(comm, folder.list_checkpoint, trainer.epoch, comm.size)
                trainer.save(folder)
            callback(EpochReport(trainer.epoch, config.epochs, loss, scores, seconds))
    stopped = stopped and trainer.epoch < config.epochs and not trainer.out_of_patience
    scores = scores or trainer.evaluate()
    summary = _summary(trainer, ledger, scores, stopped) | {"at_chance": chance.stuck}
    if metrics:
        metrics.close()
        summary |= metrics.totals()
    summary = comm.bcast(summary)        # rank 0 has gathered what the others did
    on_root(comm, folder.write_summary, summary)
    if comm.rank == 0:
        tell(closing_lines(folder.path, summary, config, trainer.strategy.closing_lines(summary)),
             "summary", {"folder": folder.path, **summary})
    return Result(folder.path, summary, EXIT_RUN_AGAIN if stopped else 0)


def peak_memory(comm) -> tuple[int, int]:
    """Peak resident bytes: the largest of any rank, and the sum over ranks."""
    mine = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    from mpi4py import MPI
    return comm.allreduce(mine, MPI.MAX), comm.allreduce(mine)


def _summary(trainer: Trainer, ledger: EpochLedger, scores, stopped: bool) -> dict:
    """What this start did; totals over all starts are those of metrics.csv."""
    largest, total = peak_memory(trainer.comm)
    facts, ranks = describe(trainer), ledger.by_rank()
    facts |= {"by_rank": ranks, **work_by_role(ranks, facts.pop("work"))}
    facts = trainer.strategy.with_costs(facts, ranks)
    return {"epochs": trainer.epoch, "stopped_early": stopped, "metric": trainer.metric,
            "out_of_patience": trainer.out_of_patience,
            "final": {k: _number(v) for k, v in scores.items()},
            "best": {"epoch": trainer.best.epoch, "val": _number(trainer.best.val),
                     "test": _number(trainer.best.test)},
            "exchange_errors": trainer.errors.summary(),
            "peak_memory_bytes": {"largest_rank": largest, "all_ranks": total}, **facts}


def _number(value: float):
    """JSON has no NaN."""
    return value if value == value and abs(value) != float("inf") else None
