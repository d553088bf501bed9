"""Why a loss is no longer a number: the training, or a codec whose range is too small."""

from __future__ import annotations

import numpy as np

from hpcgcn.errors import DivergedError
from hpcgcn.exchange.hop_settings import HopSettings
from hpcgcn.mpi.world import all_true
from hpcgcn.nn.parameters import LARGEST_PARAMETER, are_usable

# Around what computes: losses, outputs and parameters are checked instead, and no warning of
# NumPy about a line of ours reaches the user.
quiet_overflow = np.errstate(all="ignore")

SMALL_RANGE = {"fp16": float(np.finfo(np.float16).max)}   # {codec: the largest number it can send}


def explain_divergence(trainer, loss: float) -> DivergedError:
    """The error for a loss that is not finite, after this epoch's pass. Collective.

    Parameters have not been updated yet. If exact evaluation of the same parameters is finite, the
    codec's rounding to infinity is the cause.
    """
    config, epoch = trainer.config, trainer.epoch + 1        # this one is not done
    codec = next((name for name in SMALL_RANGE if name in HopSettings.of(config).families()), "")
    largest = SMALL_RANGE.get(codec)
    if largest is not None and trainer.comm.size > 1 and _exact_is_finite(trainer):
        return DivergedError(
            f"codec = '{codec}' overflowed in epoch {epoch}: rows to exchange hold numbers "
            f"above {largest:g}, the largest it can send; codec = 'bf16' has the range of float32, "
            f"`hpcgcn import --normalise-features` makes features smaller")
    return DivergedError(
        f"the loss is {loss} in epoch {epoch}: training diverged; lower lr (now {config.lr:g}), or "
        f"limit the gradient with clip (now {config.clip:g})")


def check_parameters(values: np.ndarray, epoch: int):
    """Refuse to keep what could not be read back."""
    if not are_usable(values):
        raise DivergedError(
            f"parameters after epoch {epoch} are NaN or above {LARGEST_PARAMETER:g}: training "
            "diverged; lower lr, or limit the gradient with clip")


def _exact_is_finite(trainer) -> bool:
    logits = trainer.backend.to_host(trainer.evaluators[-1].engine.evaluate())
    return all_true(trainer.comm, bool(np.isfinite(logits).all()))
