"""Trackers: what their own packages read back is what metrics.csv has; none can end a run."""

import csv
import glob
import json
import pathlib
import sys

import pytest
from graphs import random_graph

from hpcgcn.cli import main
from hpcgcn.graph.store import write_graph
from hpcgcn.train import trackers as module

EPOCHS = 4


def train(tmp_path, tracker, *flags) -> int:
    write_graph(tmp_path / "g.h5", random_graph())
    return main(["train", str(tmp_path / "g.h5"), "--epochs", str(EPOCHS), "--hidden", "4",
                 "--eval-every", "2", "--name", "r", "--output", str(tmp_path / "runs"),
                 "--tracker", tracker, *flags])


def written(tmp_path) -> list[dict]:
    with open(tmp_path / "runs" / "r" / "metrics.csv") as file:
        return list(csv.DictReader(file))


def check(tmp_path, losses: dict[int, float], scores: dict[int, float]):
    rows = written(tmp_path)
    assert len(rows) == EPOCHS
    assert losses == pytest.approx({int(row["epoch"]): float(row["loss"]) for row in rows},
                                   rel=1e-5)
    assert scores == pytest.approx({int(row["epoch"]): float(row["val"])
                                    for row in rows if row["val"]}, rel=1e-5)
    assert sorted(scores) == [2, 4]


def test_tensorboard_reads_its_event_files(tmp_path):
    pytest.importorskip("tensorboardX", reason="tensorboardX is not installed")
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator",
                                 reason="tensorboard is not installed")
    assert train(tmp_path, "tensorboard") == 0
    reader = events.EventAccumulator(str(tmp_path / "runs" / "tensorboard" / "r"))
    reader.Reload()
    check(tmp_path, *({event.step: event.value for event in reader.Scalars(name)}
                      for name in ("loss", "score/val")))
    assert reader.Scalars("best/val")[0].step in (2, 4)


def test_mlflow_reads_its_run(tmp_path, monkeypatch):
    pytest.importorskip("mlflow", reason="MLflow is not installed")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert train(tmp_path, "mlflow") == 0
    from mlflow.tracking import MlflowClient
    client = MlflowClient(f"file://{tmp_path}/runs/mlruns")
    [run] = client.search_runs([client.get_experiment_by_name("hpcgcn").experiment_id])
    check(tmp_path, *({entry.step: entry.value
                       for entry in client.get_metric_history(run.info.run_id, name)}
                      for name in ("loss", "score/val")))
    assert run.data.params["hidden"] == "4" and run.info.run_name == "r"
    assert run.info.status == "FINISHED"


def records(content: bytes):
    """The records of a .wandb file, which is a log of LevelDB's kind after 7 bytes of its own."""
    at, parts = 7, []
    while at + 7 <= len(content):
        if 32768 - at % 32768 < 7:                   # too little of a block is left for a header
            at += 32768 - at % 32768
            continue
        length, kind = int.from_bytes(content[at + 4:at + 6], "little"), content[at + 6]
        parts.append(content[at + 7:at + 7 + length])
        at += 7 + length
        if kind in (1, 4):                           # whole, or the last part
            yield b"".join(parts)
            parts = []


def test_weights_and_biases_reads_its_offline_run(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb", reason="wandb is not installed")
    monkeypatch.delenv("WANDB_MODE", raising=False)
    assert train(tmp_path, "wandb") == 0
    [path] = glob.glob(str(tmp_path / "runs" / "wandb" / "offline-run-*" / "run-*.wandb"))
    from wandb.proto.wandb_internal_pb2 import Record
    losses, scores = {}, {}
    for data in records(pathlib.Path(path).read_bytes()):
        row = {item.key or "/".join(item.nested_key): json.loads(item.value_json)
               for item in Record.FromString(data).history.item}
        if "loss" in row:
            losses[int(row["epoch"])] = row["loss"]
        if "score/val" in row:
            scores[int(row["epoch"])] = row["score/val"]
    check(tmp_path, losses, scores)
    assert wandb.run is None


@pytest.mark.parametrize("tracker", ["tensorboard", "mlflow", "wandb"])
def test_a_missing_package_is_told_before_anything_is_done(tmp_path, capsys, monkeypatch, tracker):
    monkeypatch.setitem(sys.modules, {"tensorboard": "tensorboardX"}.get(tracker, tracker), None)
    assert train(tmp_path, tracker) == 2
    message = capsys.readouterr().err
    assert f"pip install 'hpcgcn[{tracker}]'" in message and message.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_an_unknown_tracker_is_refused(tmp_path, capsys):
    assert train(tmp_path, "tensorbord") == 2
    assert "tensorboard, mlflow, wandb" in capsys.readouterr().err


def test_a_tracker_that_fails_is_dropped_with_one_warning(tmp_path, capsys, monkeypatch):
    pytest.importorskip("tensorboardX", reason="tensorboardX is not installed")

    class Failing(module.TensorBoardSink):
        """Its disk is full after the first epoch."""

        def write(self, epoch, numbers):
            if epoch > 1:
                raise OSError("No space left on device")
            super().write(epoch, numbers)

    monkeypatch.setitem(module._SINKS, "tensorboard", Failing)
    assert train(tmp_path, "tensorboard") == 0
    told = capsys.readouterr().err
    assert told.count("No space left on device") == 1 and "no longer written to" in told
    assert len(written(tmp_path)) == EPOCHS
