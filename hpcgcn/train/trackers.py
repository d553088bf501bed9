"""Trackers: what a callback is told after every epoch, in files of TensorBoard, MLflow or Weights
& Biases."""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Callable
from functools import partial
from typing import Any

from hpcgcn.config import Config, to_toml
from hpcgcn.config.tracker_names import read_trackers
from hpcgcn.errors import ConfigError
from hpcgcn.train.callback import Callback, EpochReport

log = logging.getLogger(__name__)
_PACKAGES = {"tensorboard": "tensorboardX", "mlflow": "mlflow", "wandb": "wandb"}


def check_trackers(config: Config):
    """Refuse a tracker whose package is not there, before anything is done."""
    for name in read_trackers(config.tracker):
        try:
            importlib.import_module(_PACKAGES[name])
        except ImportError as error:
            raise ConfigError(f"tracker = {name} needs the package {_PACKAGES[name]}, which cannot "
                              f"be imported here ({error}): pip install 'hpcgcn[{name}]', or leave "
                              "--tracker out") from None


class Trackers:
    """All trackers of a run, on rank 0. One that fails is dropped with a warning: training goes
    on."""

    def __init__(self, config: Config, run_folder: str, on_this_rank: bool = True):
        self.sinks: dict[str, Sink] = {}
        self.summary: dict = {}          # of a run that came to its end
        for name in read_trackers(config.tracker) if on_this_rank else ():
            self._try(name, partial(self._open, name, config, run_folder))

    def __call__(self, report: EpochReport):
        """Write one epoch to each."""
        numbers = {"loss": report.loss, "seconds_per_epoch": report.seconds,
                   **{f"score/{name}": value for name, value in report.scores.items()
                      if value == value}}
        for name, sink in list(self.sinks.items()):
            self._try(name, partial(sink.write, report.epoch, numbers))

    def and_then(self, callback: Callback | None) -> Callback | None:
        """One callback of the trackers and the user's own; None if there is neither."""
        if not self.sinks:
            return callback

        def both(report: EpochReport):
            self(report)
            if callback is not None:
                callback(report)
        return both

    def __enter__(self) -> Trackers:
        return self

    def __exit__(self, *_):
        """Finish the files."""
        best = self.summary.get("best") or {}
        numbers = {f"best/{name}": value for name, value in best.items() if value is not None}
        for name, sink in list(self.sinks.items()):
            self._try(name, partial(sink.close, numbers))

    def _open(self, name: str, config: Config, run_folder: str):
        self.sinks[name] = _SINKS[name](config, run_folder)

    def _try(self, name: str, action: Callable[[], object]):
        try:
            action()
        except Exception as error:       # noqa: BLE001 - whatever a tracker does, training goes on
            self.sinks.pop(name, None)
            log.warning("the tracker %s failed and is no longer written to: %s: %s", name,
                        type(error).__name__, str(error)[:300])


class Sink:
    """One tracker's files."""

    def __init__(self, config: Config, run_folder: str):
        """Open them; the run's name and place are those of its folder."""

    def write(self, epoch: int, numbers: dict[str, float]):
        """One epoch."""

    def close(self, numbers: dict[str, float]):
        """The end; numbers: the best epoch's."""


def _place(run_folder: str, name: str) -> str:
    """A folder for all runs of this output folder, so that a tracker shows them side by side."""
    return os.path.join(os.path.dirname(os.path.abspath(run_folder)), name)


class TensorBoardSink(Sink):
    """Event files in <output>/tensorboard/<run>."""

    def __init__(self, config: Config, run_folder: str):
        from tensorboardX import SummaryWriter
        self.writer = SummaryWriter(os.path.join(_place(run_folder, "tensorboard"),
                                                 os.path.basename(run_folder)))
        self.writer.add_text("config", f"```\n{to_toml(config)}\n```", 0)

    def write(self, epoch: int, numbers: dict[str, float]):
        for name, value in numbers.items():
            self.writer.add_scalar(name, value, epoch)
        self.writer.flush()

    def close(self, numbers: dict[str, float]):
        if "best/epoch" in numbers:
            for name, value in numbers.items():
                self.writer.add_scalar(name, value, int(numbers["best/epoch"]))
        self.writer.close()


class MLflowSink(Sink):
    """A run of MLflow, where MLFLOW_TRACKING_URI says or else in <output>/mlruns."""

    def __init__(self, config: Config, run_folder: str):
        from mlflow.tracking import MlflowClient
        # MLflow keeps files only if it is told so; a server is what the environment says.
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        address = (os.environ.get("MLFLOW_TRACKING_URI")
                   or "file://" + _place(run_folder, "mlruns"))
        self.client = MlflowClient(address)
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "hpcgcn")
        experiment = self.client.get_experiment_by_name(name)
        number = (experiment.experiment_id if experiment
                  else self.client.create_experiment(name))
        self.run = self.client.create_run(
            number, run_name=os.path.basename(run_folder)).info.run_id
        for key, value in config.as_dict().items():
            self.client.log_param(self.run, key, str(value)[:250])

    def write(self, epoch: int, numbers: dict[str, float]):
        for name, value in numbers.items():
            self.client.log_metric(self.run, name, value, step=epoch)

    def close(self, numbers: dict[str, float]):
        self.write(int(numbers.get("best/epoch", 0)), numbers)
        self.client.set_terminated(self.run, "FINISHED" if numbers else "KILLED")


class WandbSink(Sink):
    """A run of Weights & Biases in <output>/wandb: offline, unless WANDB_MODE says otherwise."""

    def __init__(self, config: Config, run_folder: str):
        import wandb
        place = os.path.dirname(os.path.abspath(run_folder))
        mode: Any = os.environ.get("WANDB_MODE", "offline")
        self.run = wandb.init(project=os.environ.get("WANDB_PROJECT", "hpcgcn"), dir=place,
                              name=os.path.basename(run_folder), config=config.as_dict(),
                              mode=mode,
                              settings=wandb.Settings(silent=True, console="off"))

    def write(self, epoch: int, numbers: dict[str, float]):
        self.run.log({**numbers, "epoch": epoch}, step=epoch)

    def close(self, numbers: dict[str, float]):
        self.run.summary.update(numbers)
        self.run.finish()


_SINKS: dict[str, type[Sink]] = {"tensorboard": TensorBoardSink, "mlflow": MLflowSink,
                                 "wandb": WandbSink}
