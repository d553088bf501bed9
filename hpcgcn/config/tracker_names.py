"""The names of trackers, as a setting lists them."""

from __future__ import annotations

TRACKERS = ("tensorboard", "mlflow", "wandb")


def read_trackers(text: str) -> list[str]:
    """none, or names of trackers separated by commas; ValueError if it is neither."""
    names = [] if text == "none" else text.split(",")
    if any(name not in TRACKERS for name in names) or len(set(names)) != len(names):
        raise ValueError(f"expected none, or some of {', '.join(TRACKERS)} separated by commas")
    return names
