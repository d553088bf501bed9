"""What a run tells on its way: a bar on a terminal, plain lines in a file, JSON for programs."""

import json
import os
import pty
import subprocess
import sys

import pytest
from graphs import random_graph

from hpcgcn import Config, write_graph
from hpcgcn.train import progress as progress_module
from hpcgcn.train.progress import Progress, in_words

TRAIN = [sys.executable, "-m", "hpcgcn", "train", "g.h5", "--hidden", "8", "--layers", "2",
         "--epochs", "20", "--eval-every", "5"]


@pytest.fixture
def folder(tmp_path):
    write_graph(str(tmp_path / "g.h5"), random_graph())
    return tmp_path


def test_a_terminal_has_a_bar_and_a_log_file_plain_lines(folder):
    ours, theirs = pty.openpty()
    ran = subprocess.run(TRAIN, cwd=folder, stdout=subprocess.PIPE, stderr=theirs, check=True)
    os.close(theirs)
    drawn = b""
    try:
        while part := os.read(ours, 4096):
            drawn += part
    except OSError:                      # so does Linux say that the other end is closed
        pass
    os.close(ours)
    assert b"/20" in drawn and (b"[#" in drawn or b"[." in drawn)
    # The bar is gone at the end: what was drawn last is blanks over it.
    assert drawn.rstrip(b"\r").endswith(b" ")
    lines = ran.stdout.decode().splitlines()
    epochs = [line for line in lines if line.startswith("epoch ")]
    assert len(epochs) == 4 and not any("\r" in line or "[#" in line for line in lines)
    assert all("ETA" in line for line in epochs[:-1]) and "ETA" not in epochs[-1]


def test_without_a_terminal_nothing_is_drawn(folder):
    ran = subprocess.run(TRAIN, cwd=folder, capture_output=True, check=True)
    assert b"\r" not in ran.stderr + ran.stdout


def test_json_has_an_object_per_line(folder):
    run = [*TRAIN, "--log-format", "json"]
    ran = subprocess.run(run, cwd=folder, capture_output=True, check=True)
    events = [json.loads(line) for line in ran.stdout.splitlines()]
    epochs = [event for event in events if event["event"] == "epoch"]
    assert [event["epoch"] for event in epochs] == [5, 10, 15, 20]
    assert all({"loss", "train", "val", "test", "seconds_left"} <= set(event) for event in epochs)
    assert epochs[-1]["seconds_left"] == 0
    summary = json.loads((folder / "runs/g-sage-overlap/summary.json").read_text())
    assert events[-1]["event"] == "summary" and events[-1]["best"] == summary["best"]
    again = subprocess.run([*run, "--name", "g-sage-overlap"], cwd=folder, capture_output=True)
    refused = [json.loads(line) for line in again.stderr.splitlines()]
    assert again.returncode == 2 and refused[-1]["level"] == "error"
    assert "holds a run already" in refused[-1]["message"]


def test_time_left_counts_what_comes_between_epochs(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress_module.time, "perf_counter", lambda: now[0])
    shown = Progress(Config(epochs=100), speaks=False)
    for epoch in range(1, 11):
        now[0] += 3.0                    # of which the epoch itself took one second
        shown.epoch_done(epoch, 1.0)
    assert shown.seconds_left(10) == pytest.approx(90 * 3.0)


@pytest.mark.parametrize("seconds, words", [
    (0, "0 s"), (0.2, "1 s"), (59, "59 s"), (59.5, "1 min 00 s"), (3599, "59 min 59 s"),
    (3600, "1 h 00 min"), (47 * 3600, "47 h 00 min"), (100 * 3600, "4 d 04 h")])
def test_durations(seconds, words):
    assert in_words(seconds) == words
