"""A whole run: load, train, evaluate, keep. The same function serves the command line and scripts."""

from __future__ import annotations

import gc
import os
import resource
import sys
import time
from dataclasses import dataclass

from hpcgcn.backend import make_backend
from hpcgcn.config import Config
from hpcgcn.errors import CheckpointError
from hpcgcn.mpi.world import EXIT_RUN_AGAIN, StopRequest, collective_errors, local_rank, on_root
from hpcgcn.mpi.runtime import Runtime
from hpcgcn.mpi.watchdog import Watchdog
from hpcgcn.train import checkpoint
from hpcgcn.train.accounting import ages_line, pipeline_costs, work_by_role
from hpcgcn.train.folder import RunFolder
from hpcgcn.train.plateau import ChanceWatch, chance_loss, remedy
from hpcgcn.train.source import load_part, sparse_ranks
from hpcgcn.train.trainer import EpochLedger, Trainer, describe, metrics_file


STRAGGLER = 1.5                      # times the typical compute time at which a rank is named


@dataclass
class Result:
    """How a run ended. `exit_code` is 0, or 75 if it stopped early and wants to be started again."""

    folder: str
    summary: dict
    exit_code: int


def threads_per_rank(comm, wanted: int) -> int:
    """ranks x threads = cores of the host, within what this process may use."""
    if wanted:
        return wanted
    _, ranks_here = local_rank(comm)
    return max(1, min(len(os.sched_getaffinity(0)), (os.cpu_count() or 1) // ranks_here))


def open_backend(comm, config: Config):
    """The backend of the settings, with a note to the user if it is not the expected one."""
    threads = threads_per_rank(comm, config.threads)
    with collective_errors(comm):
        name = config.backend
        if config.sparse_backend != "auto" and comm.rank < sparse_ranks(config, comm.size):
            name = config.sparse_backend
        backend, note = make_backend(name, config.dtype, threads, comm, config.mpi)
    if note and comm.rank == 0:
        print(f"hpcgcn: {note}", file=sys.stderr, flush=True)
    return backend


def train_model(source, config: Config, comm=None) -> Result:
    """Train on a graph file, a partition file, or (one rank) a Graph. Collective over `comm` (default: all ranks)."""
    if comm is None:
        from hpcgcn.mpi.world import world
        comm = world()
    gc.collect()      # arrays of an earlier run of this process: they hang in cycles, and few objects do not make Python look
    runtime = Runtime(comm)
    with Watchdog(comm, config.output, config.stall_timeout, runtime.heartbeat) as watchdog, runtime:
        return _train(source, config, runtime, watchdog)


def _train(source, config: Config, runtime: Runtime, watchdog: Watchdog) -> Result:
    comm = runtime.comm
    say = _printer(comm, config)
    watchdog.where = "reading its part"
    part = load_part(comm, source, config)
    watchdog.where = "setting up"
    backend = open_backend(comm, config)
    folder = RunFolder(on_root(comm, lambda: RunFolder.prepare(config, source).path))
    finished = on_root(comm, _finished, folder, config)
    if finished:
        say(f"{folder.path} is finished ({config.epochs} epochs): nothing to do")
        return Result(folder.path, finished, 0)
    chosen = on_root(comm, folder.read_choices) if config.resume != "never" else {}
    with collective_errors(comm):
        trainer = Trainer(runtime, backend, part, config, chosen)
    if comm.rank == 0 and trainer.chosen:
        folder.write_choices(trainer.chosen)
    del part
    _resume(trainer, folder, say)
    result = _run(trainer, folder, say, watchdog)
    trainer.close()
    return result


def _printer(comm, config: Config):
    def say(text: str):
        if comm.rank == 0 and not config.quiet:
            print(text, flush=True)
    return say


def _finished(folder: RunFolder, config: Config) -> dict | None:
    summary = folder.read_summary() if config.resume != "never" else None
    return summary if summary and summary["epochs"] >= config.epochs and not summary["stopped_early"] else None


def _checkpoint_to_resume(folder: RunFolder, config: Config) -> str | None:
    path = checkpoint.newest(folder.checkpoints) if config.resume != "never" else None
    if path is None and config.resume == "must":
        raise CheckpointError(f"--resume: there is no checkpoint in {folder.path} that can be read; --resume auto begins anew")
    return path


def _resume(trainer: Trainer, folder: RunFolder, say):
    config, comm = trainer.config, trainer.comm
    path = on_root(comm, _checkpoint_to_resume, folder, config)
    if path is None:
        return
    note = trainer.restore(path)
    say(f"resuming from {path}: {trainer.epoch} epochs done" + (f"; {note}" if note else ""))


def _run(trainer: Trainer, folder: RunFolder, say, watchdog: Watchdog) -> Result:
    """The epochs, with evaluation, metrics and checkpoints between them."""
    config, comm = trainer.config, trainer.comm
    began, first_epoch = time.perf_counter(), trainer.epoch
    ledger = EpochLedger(comm, trainer.engine.strategy.exchanges)
    metrics = metrics_file(trainer, folder, ledger)
    chance = ChanceWatch(chance_loss(comm, trainer.engine.labels, trainer.shape.n_classes))
    stopped, found, training_seconds, times = False, {}, 0.0, []
    with StopRequest() as request, watchdog.impatient():
        while trainer.epoch < config.epochs and not stopped:
            late = config.time_limit and time.perf_counter() - began > 60 * config.time_limit
            epoch_began = time.perf_counter()
            watchdog.where = f"epoch {trainer.epoch}"
            trainer.runtime.heartbeat.beat()
            rate = trainer.rate.rate(trainer.epoch)
            ledger.reset()
            loss, stopped, allreduce = trainer.run_epoch(bool(request.received or late))
            seconds = time.perf_counter() - epoch_began
            training_seconds += seconds
            times.append(seconds)
            warning = chance.observe(loss)
            if warning and comm.rank == 0:
                print(f"hpcgcn: {warning}; {remedy(config)}", file=sys.stderr, flush=True)
            row = ledger.collect(seconds, allreduce, rate)
            last = trainer.epoch == config.epochs
            found = {}
            if last or stopped or (config.eval_every and trainer.epoch % config.eval_every == 0):
                found = trainer.evaluate()
                trainer.remember_best(found)
                say(_progress_line(trainer, loss, found, times))
            if metrics:
                metrics.write({"epoch": trainer.epoch - 1, "loss": loss, **{k: v for k, v in found.items() if v == v}, **row,
                               **trainer.epoch_facts(row)})
            if last or stopped or (config.checkpoint_every and trainer.epoch % config.checkpoint_every == 0):
                watchdog.where = f"checkpoint after epoch {trainer.epoch - 1}"
                trainer.save(folder)
    stopped = stopped and trainer.epoch < config.epochs
    found = found or trainer.evaluate()
    summary = _summary(trainer, ledger, found, stopped, training_seconds, trainer.epoch - first_epoch)
    summary["at_chance"] = chance.stuck
    if metrics:
        metrics.close()
        folder.write_summary(summary)
    say(_closing_lines(folder, summary, stopped, config))
    return Result(folder.path, summary, EXIT_RUN_AGAIN if stopped else 0)


def _progress_line(trainer: Trainer, loss: float, found: dict, times: list[float]) -> str:
    recent = sorted(times[-50:])[len(times[-50:]) // 2]
    parts = "  ".join(f"{name} {value:.4f}" for name, value in found.items())
    return f"epoch {trainer.epoch:>5}/{trainer.config.epochs}  loss {loss:.4f}  {parts}  {1000 * recent:.1f} ms/epoch"


def peak_memory(comm) -> tuple[int, int]:
    """Peak resident bytes: the largest of any rank, and the sum over ranks."""
    mine = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    from mpi4py import MPI
    return comm.allreduce(mine, MPI.MAX), comm.allreduce(mine)


def _summary(trainer: Trainer, ledger: EpochLedger, found, stopped: bool, seconds: float, n_epochs: int) -> dict:
    largest, total = peak_memory(trainer.comm)
    facts, costs = describe(trainer), ledger.summary()
    costs |= work_by_role(costs["by_rank"], facts.pop("work"))
    if trainer.layered:
        facts["pipeline"] = pipeline_costs(costs["by_rank"], facts["pipeline"])
    return {"epochs": trainer.epoch, "stopped_early": stopped, "final": {k: _number(v) for k, v in found.items()},
            "best": {"epoch": trainer.best.epoch, "val": _number(trainer.best.val), "test": _number(trainer.best.test)},
            "training_seconds": seconds, "seconds_per_epoch": seconds / n_epochs if n_epochs else 0.0,
            "peak_memory_bytes": {"largest_rank": largest, "all_ranks": total}, **costs, **facts}


def _number(value: float):
    """JSON has no NaN."""
    return value if value == value and abs(value) != float("inf") else None


def _closing_lines(folder: RunFolder, summary: dict, stopped: bool, config: Config) -> str:
    if stopped:
        return (f"stopped early after {summary['epochs']} of {config.epochs} epochs, with a checkpoint: run the same command "
                f"with --resume auto to go on (exit code {EXIT_RUN_AGAIN})")
    best = summary["best"]
    score = f"test {best['test']:.4f} at the best validation (epoch {best['epoch']})" if best["test"] is not None else "done"
    return (f"{score}; {summary['seconds_per_epoch'] * 1000:.1f} ms/epoch, {summary['bytes_sent'] / 1e6:.1f} MB sent, "
            f"compression {summary['compression']:.1f}, peak memory {summary['peak_memory_bytes']['largest_rank'] / 2**20:.0f} "
            f"MiB a rank\n{_work(summary)}{_straggler(summary)}{_pipeline(summary)}{_chance(summary)}"
            f"results: {folder.path}")


def _work(summary: dict) -> str:
    """A line about how aggregation is balanced and, where ranks have roles, how busy each is."""
    if summary["ranks"] < 2:
        return ""
    roles = [f"{role} ranks {100 * found['busy_share']:.0f} % busy" for role, found in summary["roles"].items()]
    return (f"aggregation work, most over mean: {summary['multiply_adds']['max_over_mean']:.2f}"
            + (f"; {', '.join(roles)}" if len(roles) > 1 else "") + "\n")


def _pipeline(summary: dict) -> str:
    """A line about a pipeline: how long its stages wait, and how evenly they are loaded."""
    if "pipeline" not in summary:
        return ""
    found = summary["pipeline"]
    return (f"{found['stages']} stages x {found['ways']} ways, {found['chunks']} chunks: bubble "
            f"{100 * found['bubble_measured']:.0f} % (formula {100 * found['bubble_predicted']:.0f} %), slowest stage "
            f"{found['balance']:.2f} times the mean\n{ages_line(found['reads_by_age'])}")


def _chance(summary: dict) -> str:
    return "the loss is still at chance: this did not train\n" if summary["at_chance"] else ""


def _straggler(summary: dict) -> str:
    """A line about a rank that computes much longer than the others, which all of them then wait for."""
    ranks = summary["by_rank"]
    seconds = sorted(r["compute_seconds"] for r in ranks)
    slowest = max(ranks, key=lambda r: r["compute_seconds"])
    typical = seconds[(len(seconds) - 1) // 2]
    if len(ranks) < 2 or len(summary["roles"]) > 1 or typical <= 0 or slowest["compute_seconds"] < STRAGGLER * typical:
        return ""
    return (f"rank {slowest['rank']} on host {summary['hosts'][slowest['rank']]} computes {slowest['compute_seconds'] / typical:.1f} "
            f"times as long as a typical rank: a slower or busier host, or a larger part\n")
