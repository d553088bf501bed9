"""A function of the user's that is called after every epoch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hpcgcn.errors import HpcgcnError
from hpcgcn.mpi.world import here


class CallbackError(HpcgcnError):
    """The user's function failed."""


@dataclass(frozen=True)
class EpochReport:
    """What a callback gets; the same on every rank but for `seconds`."""

    epoch: int                       # epochs done, this one included
    epochs: int                      # epochs of the whole run
    loss: float                      # of the training nodes, before this epoch's update
    scores: dict[str, float] = field(default_factory=dict)   # of train, val and test, if evaluated
    seconds: float = 0.0             # that this rank took for the epoch


Callback = Callable[[EpochReport], object]


class CallbackRunner:
    """Calls the function, if any rank has one. An exception of one rank's ends the run on all."""

    def __init__(self, comm, callback: Callback | None):
        self.comm, self.callback = comm, callback
        self.used = any(comm.allgather(callback is not None))

    def __call__(self, report: EpochReport):
        """Collective."""
        if not self.used:
            return
        error = None
        try:
            if self.callback is not None:
                self.callback(report)
        except Exception as caught:      # noqa: BLE001 - whatever it is, the others must hear of it
            error = caught
        told = self.comm.allgather(error and f"{type(error).__name__}: {error} [{here(self.comm)}]")
        failed = [words for words in told if words]
        if failed:
            raise _agreed(f"the callback failed after epoch {report.epoch}: {failed[0]}") from error


def _agreed(message: str) -> CallbackError:
    error = CallbackError(message)
    error.agreed = True
    return error
