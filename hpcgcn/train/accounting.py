"""What an epoch cost: bytes by hop and direction, and where the seconds went, gathered from all
ranks."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from hpcgcn.exchange.statistics import Statistics
from hpcgcn.parallel.balance import max_over_mean

COUNTED = tuple(field.name for field in fields(Statistics))          # of every exchange
SCALARS = ("seconds", "allreduce_seconds", *COUNTED)
IDLE_OR_MOVING = ("wait_seconds", "pack_seconds", "unpack_seconds", "allreduce_seconds")


def exchange_columns(exchanges) -> list[str]:
    """Names of the columns that hold the bytes of a hop and direction; a transpose's blocks count
    as one."""
    return list(dict.fromkeys(f"bytes_{direction}_{hop}" for hop, direction, _ in exchanges))


class EpochLedger:
    """Collects one epoch's statistics; rank 0 gets everyone's."""

    def __init__(self, comm, exchanges):
        self.comm, self.exchanges = comm, exchanges
        # Ranks of a pipeline have exchanges of their own layers only.
        self.columns = list(dict.fromkeys(
            name for names in comm.allgather(exchange_columns(exchanges)) for name in names))
        self.totals = np.zeros((comm.size, len(SCALARS) + len(self.columns)))
        self.n_epochs = 0
        self.reset()

    def reset(self):
        """Forget what was counted since the last collect (an evaluation, say)."""
        for _, _, exchange in self.exchanges:
            exchange.statistics.reset()

    def collect(self, seconds: float, allreduce: float, rate: float) -> dict | None:
        """This epoch as a row for metrics.csv, on rank 0; None elsewhere."""
        mine = [seconds, allreduce]
        mine += [sum(getattr(exchange.statistics, name) for _, _, exchange in self.exchanges)
                 for name in COUNTED]
        by_column = dict.fromkeys(self.columns, 0)
        for hop, direction, exchange in self.exchanges:
            by_column[f"bytes_{direction}_{hop}"] += exchange.statistics.bytes_sent
        mine += by_column.values()
        everyone = np.empty_like(self.totals) if self.comm.rank == 0 else None
        self.comm.Gather(np.array(mine, np.float64), everyone)
        self.reset()
        if everyone is None:
            return None
        self.totals += everyone
        self.n_epochs += 1
        return self._row(everyone, rate)

    def _row(self, everyone: np.ndarray, rate: float) -> dict:
        value = dict(zip(SCALARS, everyone.sum(axis=0)))
        seconds = float(everyone[:, 0].max())
        busy = sum(value[name] for name in IDLE_OR_MOVING)
        row = {"seconds": seconds, **{name: float(value[name]) for name in IDLE_OR_MOVING},
               "compute_seconds": float(value["seconds"] - busy),
               "bytes_sent": int(value["bytes_sent"]),
               "bytes_received": int(value["bytes_received"]),
               "bytes_network": int(value["bytes_network"]),
               "bytes_parameters": int(value["bytes_parameters"]),
               "bytes_uncompressed": int(value["bytes_uncompressed"]),
               "stale_share": float(value["stale_uses"] / value["uses"]) if value["uses"] else 0.0,
               "hidden_share": float(1 - value["wait_seconds"] / value["flight_seconds"])
               if value["flight_seconds"] else 0.0,
               "rate": float(rate), "flight_seconds": float(value["flight_seconds"])}
        sent = everyone[:, len(SCALARS):].sum(axis=0)
        return row | {name: int(n) for name, n in zip(self.columns, sent)}

    def by_rank(self) -> list[dict]:
        """Each rank's mean epoch of this start. Only on rank 0."""
        return [_mean_epoch(rank, dict(zip(SCALARS, row)), max(self.n_epochs, 1))
                for rank, row in enumerate(self.totals)]


def _mean_epoch(rank: int, total: dict, n_epochs: int) -> dict:
    """Where the seconds of one rank's mean epoch went."""
    seconds = {name: total[name] / n_epochs for name in IDLE_OR_MOVING}
    return {"rank": rank, **seconds,
            "compute_seconds": total["seconds"] / n_epochs - sum(seconds.values())}


def work_by_role(ranks: list[dict], work: list[tuple[str, int]]) -> dict:
    """Who did how much: busy and idle share of each role, and the balance of the sparse products.

    ranks: `by_rank` of a summary; each gets its role and multiply-adds an epoch from `work`. Idle
    is the wait for messages and the all-reduce at the epoch's end (whose own cost is small);
    everything else is busy.
    """
    for rank, (role, multiply_adds) in zip(ranks, work):
        rank |= {"role": role, "multiply_adds": multiply_adds}
    return {"roles": {role: _shares([r for r in ranks if r["role"] == role])
                      for role in sorted({role for role, _ in work})},
            "multiply_adds": {"all_ranks": sum(n for _, n in work), "max_over_mean": max_over_mean(
                [n for role, n in work if role != "dense"])}}


def _shares(ranks: list[dict]) -> dict:
    idle = sum(r["wait_seconds"] + r["allreduce_seconds"] for r in ranks)
    whole = idle + sum(r[f"{name}_seconds"] for r in ranks
                       for name in ("pack", "unpack", "compute"))
    share = idle / whole if whole else 0.0
    return {"ranks": len(ranks), "busy_share": 1.0 - share, "idle_share": share}
