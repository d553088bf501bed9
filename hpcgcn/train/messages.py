"""What a run tells people: progress, notes at its start, and the summary at its end."""

from __future__ import annotations

from hpcgcn.config import Config
from hpcgcn.config.groups import CommunicationSettings
from hpcgcn.exchange.describe import WORDS
from hpcgcn.exchange.presets import PRESETS
from hpcgcn.mpi.world import EXIT_RUN_AGAIN
from hpcgcn.train.exchange_errors import HIGH_DRIFT

MANY = 0.1                           # share of stale epochs with a high drift that is worth a word
FALLEN = 0.03                        # of the validation score since its best
STRAGGLER = 1.5                      # times the typical compute time at which a rank is named


def unused_settings(config: Config, n_ranks: int) -> str:
    """A note if settings of communication have no effect, because there is none; or ""."""
    given = CommunicationSettings()
    exchanged = [name for name in ("codec", "staleness")
                 if getattr(config, name) != getattr(given, name)]
    if n_ranks > 1 or not exchanged:
        return ""
    preset = PRESETS[config.method].settings
    names = ["method"] if any(name in preset for name in exchanged) else exchanged
    given_here = ", ".join(f"{name} = '{getattr(config, name)}'" for name in names)
    return (f"{given_here} changes what ranks exchange: on 1 rank it has no effect; "
            f"start several (mpirun -n 2 hpcgcn train ...)")


def closing_lines(path: str, summary: dict, config: Config, of_strategy: str = "") -> str:
    """The end of a run in a few lines; of_strategy: those that its strategy adds."""
    if summary["stopped_early"]:
        return (f"stopped early after {summary['epochs']} of {config.epochs} epochs, with a "
                f"checkpoint: run the same command with --resume auto to go on (exit code "
                f"{EXIT_RUN_AGAIN})")
    best, memory = summary["best"], summary["peak_memory_bytes"]["largest_rank"]
    score = (f"test {best['test']:.4f} at the best validation (epoch {best['epoch']})"
             if best["test"] is not None else "done")
    if summary.get("out_of_patience"):
        score = (f"no better validation score for {summary['epochs'] - best['epoch']} epochs: "
                 f"stopped after {summary['epochs']} of {config.epochs}; {score}")
    return (f"{score}; {summary['seconds_per_epoch'] * 1000:.1f} ms/epoch, "
            f"{_sent(summary)}, compression {summary['compression']:.1f}, "
            f"peak memory {memory / 2**20:.0f} MiB per rank\n"
            f"{_work(summary)}{_straggler(summary)}{of_strategy}{_errors(summary)}"
            f"{_fallen(summary)}{_chance(summary)}"
            f"results: {path}")


def _sent(summary: dict) -> str:
    """Bytes of a run's messages and, where some stay within a host, those between hosts."""
    sent, network = summary["bytes_sent"], summary["bytes_network"]
    between = f" ({network / 1e6:.1f} MB between hosts)" if 0 < network < sent else ""
    return f"{sent / 1e6:.1f} MB sent{between}"


def _work(summary: dict) -> str:
    """How aggregation is balanced and, where ranks have roles, how busy each is."""
    if summary["ranks"] < 2:
        return ""
    roles = [f"{role} ranks {100 * facts['busy_share']:.0f} % busy"
             for role, facts in summary["roles"].items()]
    return (f"aggregation work, maximum over mean: {summary['multiply_adds']['max_over_mean']:.2f}"
            + (f"; {', '.join(roles)}" if len(roles) > 1 else "") + "\n")


def _errors(summary: dict) -> str:
    """A warning if stale rows were far from current ones, hop by hop, in many epochs."""
    high = {name: errors for name, errors in summary["exchange_errors"].items()
            if errors["stale_uses_with_high_drift"] > MANY * max(errors["stale_uses"], 10)}
    if not high:
        return ""
    where = ", ".join(f"{errors['stale_uses_with_high_drift'] / errors['stale_uses']:.0%} at hop "
                      f"{name.partition('_')[2]} {WORDS[name.partition('_')[0]]}"
                      for name, errors in high.items())
    return (f"warning: stale rows drifted by more than {HIGH_DRIFT:g} of their size in many epochs "
            f"({where}), which may have cost accuracy: --stale-error {HIGH_DRIFT / 2:g} makes such "
            f"epochs synchronous; compare with --method overlap\n")


def _fallen(summary: dict) -> str:
    """A warning if a run with stale or coded rows ended far below its best."""
    best, last = summary["best"]["val"], summary["final"].get("val")
    if not summary["exchange_errors"] or best is None or last is None or best - last < FALLEN:
        return ""
    return (f"warning: the validation score fell from {best:.4f} (epoch {summary['best']['epoch']})"
            f" to {last:.4f}: stale or compressed rows may be the reason; compare with --method "
            f"overlap\n")


def _chance(summary: dict) -> str:
    return "the loss is still at chance: this did not train\n" if summary["at_chance"] else ""


def _straggler(summary: dict) -> str:
    """A rank that computes much longer than the others, which all of them then wait for."""
    ranks = summary["by_rank"]
    seconds = sorted(rank["compute_seconds"] for rank in ranks)
    slowest = max(ranks, key=lambda rank: rank["compute_seconds"])
    typical = seconds[(len(seconds) - 1) // 2]
    if (len(ranks) < 2 or len(summary["roles"]) > 1 or typical <= 0
            or slowest["compute_seconds"] < STRAGGLER * typical):
        return ""
    return (f"rank {slowest['rank']} on host {summary['hosts'][slowest['rank']]} computes "
            f"{slowest['compute_seconds'] / typical:.1f} times as long as a typical rank: a slower "
            f"or busier host, or a larger part\n")
