"""Traces of real runs: complete, true to metrics.csv, and readable by other programs."""

import json

import pytest
from many_runs import job, run_many

from hpcgcn.cli import main
from hpcgcn.errors import FileError
from hpcgcn.graph.generate import generate_sbm
from hpcgcn.graph.store import write_graph
from hpcgcn.timeline.profile import kind_alone, products, profile
from hpcgcn.timeline.read import read_timeline

RANKS, EPOCHS = 4, [5, 6, 7, 8]
RUNS = {"vanilla": {}, "overlap": {}, "pipegcn": {}, "sylvie-a": {}, "gnnpipe": {}, "mixgcn": {},
        "hosts": {"method": "overlap", "parallel": "hosts", "ranks_per_host": 2},
        "gat": {"method": "pipegcn", "model": "gat"},
        "newest": {"method": "overlap", "trace": "last:2"},
        "untraced": {"method": "overlap", "trace": "none"},
        "not reached": {"method": "overlap", "trace": "100-110", "epochs": 2}}
TRACED = [name for name in RUNS if name not in ("newest", "untraced", "not reached")]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """(folder of the runs, what they left)."""
    folder = tmp_path_factory.mktemp("traces")
    write_graph(folder / "g.h5", generate_sbm(600, 10, 12, 4, seed=1))
    jobs = [job(name, "g.h5", **{"method": name, "model": "gcnii", "layers": 4, "trace": "5-8",
                                 "eval_every": 3} | settings) for name, settings in RUNS.items()]
    results = run_many(RANKS, jobs, folder)
    assert not [result for result in results.values() if "error" in result]
    return folder / "runs", results


@pytest.fixture(params=TRACED)
def traced(request, runs):
    """(timeline, rows of metrics.csv) of the traced epochs of a run."""
    folder, results = runs
    rows = [{name: float(value) for name, value in row.items() if value}
            for row in results[request.param]["rows"] if int(row["epoch"]) in EPOCHS]
    return read_timeline(str(folder / request.param)), rows


def total(rows, name: str) -> float:
    return sum(row[name] for row in rows)


def test_the_window_is_recorded_by_all_ranks(traced):
    timeline, _ = traced
    assert timeline.epochs() == EPOCHS and [rank.rank for rank in timeline.ranks] == [0, 1, 2, 3]
    names = {phase.name for rank in timeline.ranks for phase in rank.phases}
    assert names == {"epoch", "evaluation"}


def test_every_moment_of_an_epoch_is_an_activity(traced):
    timeline, _ = traced
    for rank in timeline.ranks:
        recorded = sum(span.seconds for span in rank.in_epochs(EPOCHS))
        whole = sum(phase.stop - phase.start for phase in rank.epochs())
        assert recorded == pytest.approx(whole, rel=0.05)
        for before, after in zip(rank.spans, rank.spans[1:]):
            assert before.stop <= after.start + 1e-9


def test_waits_and_hidden_time_are_those_of_the_metrics(traced):
    timeline, rows = traced
    hidden = 1.0 - total(rows, "wait_seconds") / total(rows, "flight_seconds")
    assert timeline.hidden_share(EPOCHS) == pytest.approx(hidden, abs=0.02)
    seconds = {row.activity.kind: row.mean_seconds * RANKS * len(EPOCHS)
               for row in profile(timeline, EPOCHS, kind_alone)}
    assert seconds.get("wait", 0.0) == pytest.approx(total(rows, "wait_seconds"), rel=0.1,
                                                     abs=1e-3)


def test_bytes_are_those_of_the_metrics(traced):
    timeline, rows = traced
    sent = sum(row.bytes_sent for row in profile(timeline, EPOCHS)) * len(EPOCHS)
    assert sent == total(rows, "bytes_sent") > 0


def test_no_message_arrives_before_it_is_sent(traced):
    timeline, _ = traced
    arrived = [message for message in timeline.messages if message.arrived is not None]
    assert len(arrived) > 0.7 * len(timeline.messages)
    assert all(message.arrived > message.sent for message in arrived)


def test_stale_messages_are_in_flight_from_epoch_to_epoch(runs):
    def crossing(name: str) -> int:
        timeline = read_timeline(str(runs[0] / name))
        return sum(not any(epoch.holds(flight.start) and epoch.holds(flight.stop)
                           for epoch in rank.epochs())
                   for rank in timeline.ranks for flight in rank.flights
                   if any(epoch.holds(flight.stop) for epoch in rank.epochs()))
    assert crossing("overlap") == 0 < crossing("pipegcn")


def test_kinds_of_blocks_are_told_apart(runs):
    def kinds(name: str) -> set[str]:
        return {row.activity.kind for row in profile(read_timeline(str(runs[0] / name)), EPOCHS)}
    partitioned = {"interior", "boundary", "halo", "block", "weights", "loss", "pack", "wait",
                   "unpack", "allreduce"}
    assert partitioned <= kinds("overlap") and partitioned <= kinds("gat")
    assert {"aggregate", "block", "weights", "pack", "wait"} <= kinds("gnnpipe") & kinds("mixgcn")


@pytest.mark.parametrize("name", ["overlap", "mixgcn", "hosts", "gat"])
def test_arithmetic_is_that_of_the_summary(runs, name):
    counted = products(read_timeline(str(runs[0] / name)), EPOCHS)
    summary = runs[1][name]["summary"]["multiply_adds"]["all_ranks"]
    assert sum(product.multiply_adds for product in counted) == summary > 0
    assert all(product.seconds > 0 and product.gigaflops > 0 for product in counted)


def test_the_newest_epochs_are_kept_where_the_end_is_not_known(runs):
    assert read_timeline(str(runs[0] / "newest")).epochs() == [11, 12]


def test_a_trace_changes_no_number(runs):
    results = runs[1]
    assert results["overlap"]["losses"] == results["untraced"]["losses"]
    assert results["overlap"]["digest"] == results["untraced"]["digest"]


def test_the_file_for_perfetto_nests(traced, runs, tmp_path):
    """Events of a thread lie one within another or apart; arrows have both ends."""
    from hpcgcn.timeline.chrome import chrome_trace
    events = json.loads(chrome_trace(traced[0], "a run"))["traceEvents"]
    assert {event["ph"] for event in events} == {"M", "X", "b", "e", "s", "f"}
    threads: dict[tuple, list] = {}
    for event in events:
        if event["ph"] == "X":
            threads.setdefault((event["pid"], event["tid"]), []).append(event)
    assert len(threads) == 2 * RANKS
    for thread in threads.values():
        thread.sort(key=lambda event: event["ts"])
        for before, after in zip(thread, thread[1:]):
            assert after["ts"] >= before["ts"] + before["dur"] - 0.3       # of rounding
    begun, ended = ({event["id"] for event in events if event["ph"] == phase}
                    for phase in ("s", "f"))
    assert begun == ended


# -- the commands ----------------------------------------------------------------------------------

def test_trace_writes_a_file_and_keeps_others(runs, tmp_path, capsys):
    run, path = str(runs[0] / "overlap"), tmp_path / "t.json"
    assert main(["trace", run, "-o", str(path)]) == 0
    assert "4 ranks, epochs 5 to 8" in capsys.readouterr().out
    assert json.loads(path.read_text())["otherData"] == {"run": run}
    assert main(["trace", run, "-o", str(path)]) == 2
    assert "is there already" in capsys.readouterr().err
    assert main(["trace", run, "-o", str(path), "--overwrite"]) == 0


def test_profile_has_a_row_for_every_operation(runs, capsys):
    run = str(runs[0] / "overlap")
    assert main(["profile", run]) == 0
    text = capsys.readouterr().out
    assert "row-wise steps, block" in text and "slowest rank" in text
    assert "epochs 5 to 8 of 4 ranks" in text
    assert main(["profile", run, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert sum(row["share"] for row in rows) == pytest.approx(1.0)
    assert ("interior", 2, "backward") in {(row["kind"], row["hop"], row["direction"])
                                           for row in rows}
    assert main(["profile", run, "--by", "kind", "--json"]) == 0
    kinds = json.loads(capsys.readouterr().out)
    assert sum(row["mean_seconds"] for row in kinds) == pytest.approx(
        sum(row["mean_seconds"] for row in rows))


@pytest.mark.parametrize("command", ["trace", "profile"])
def test_a_run_without_a_trace_is_told_so(runs, command, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main([command, str(runs[0] / "untraced")]) == 2
    assert "train with --trace" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["trace", "profile"])
def test_a_window_that_was_not_reached_is_told(runs, command, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main([command, str(runs[0] / "not reached")]) == 2
    assert "no epoch was recorded" in capsys.readouterr().err and not list(tmp_path.iterdir())


DAMAGES = {
    "cut": lambda text: text[:len(text) // 2],
    "no json": lambda text: "trace",
    "another format": lambda text: text.replace("hpcgcn-trace", "another"),
    "a list": lambda text: "[1, 2]",
    "no ranks": lambda text: '{"format": "hpcgcn-trace", "version": 1, "ranks": []}',
    "an unknown kind": lambda text: text.replace('"interior"', '"exterior"'),
    "times that are text": lambda text: text.replace('"flights":[[', '"flights":[["x",'),
    "no number": lambda text: text.replace('"switches":[[0', '"switches":[[NaN', 1),
    "a rank twice": lambda text: text.replace('"rank":1', '"rank":0'),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_trace_is_refused_with_one_message(runs, tmp_path, damage):
    text = (runs[0] / "overlap" / "trace.json").read_text()
    changed = DAMAGES[damage](text)
    assert changed != text
    (tmp_path / "trace.json").write_text(changed)
    with pytest.raises(FileError, match="is damaged"):
        read_timeline(str(tmp_path))
