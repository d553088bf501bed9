"""The report: what it reads, shows and refuses, and that nothing a user wrote gets into the page
unescaped."""

import html.parser
import json
import math
import os
import re
import sys
import xml.etree.ElementTree as ElementTree

import pytest

from hpcgcn.cli import main
from hpcgcn.config import make_config, to_toml
from hpcgcn.errors import FileError
from hpcgcn.report import scales, tables
from hpcgcn.report.curves import make_charts, thinned
from hpcgcn.report.page import page
from hpcgcn.report.pipelines import ages_of, pipelines
from hpcgcn.report.runs import PHASES, read_run, read_runs
from hpcgcn.train.metrics import COLUMNS


def make_run(folder, *, method="vanilla", epochs=20, ranks=2, sent=1000, eval_every=2, summary=True,
             **settings):
    """A run folder with plausible contents; returns its path as text."""
    folder.mkdir(parents=True)
    config = make_config({"method": method, "name": folder.name, "epochs": epochs} | settings)
    (folder / "config.toml").write_text(to_toml(config))
    lines = [",".join(COLUMNS)]
    for epoch in range(epochs):
        row = {"epoch": epoch + 1, "loss": 2.0 * 0.9 ** epoch, "seconds": 0.1, "bytes_sent": sent,
               "bytes_uncompressed": 4000 * bool(sent), "stale_share": 0.0, "hidden_share": 0.5,
               "rate": 1.0}
        row |= {f"{phase}_seconds": 0.02 * ranks for phase in PHASES}
        if (epoch + 1) % eval_every == 0:
            row |= {"train": 0.9, "val": 0.5 + 0.02 * epoch, "test": 0.4 + 0.02 * epoch}
        lines.append(",".join(str(row.get(name, "")) for name in COLUMNS))
    (folder / "metrics.csv").write_text("\n".join(lines) + "\n")
    if summary:
        by_rank = [{"rank": rank, **{f"{phase}_seconds": 0.02 for phase in PHASES}}
                   for rank in range(ranks)]
        (folder / "summary.json").write_text(json.dumps({
            "epochs": epochs, "stopped_early": False, "nodes": 500, "ranks": ranks,
            "hidden_share": 0.25,
            "by_rank": by_rank, "peak_memory_bytes": {"largest_rank": 10 ** 8}}))
    return str(folder)


class Outline(html.parser.HTMLParser):
    """Tags with their attributes, and the text outside scripts and styles."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.text, self._quiet = [], "", False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self._quiet = tag in ("script", "style")

    def handle_endtag(self, tag):
        self._quiet = False

    def handle_data(self, data):
        self.text += "" if self._quiet else data


def test_a_page_of_one_run_has_everything(tmp_path):
    text = page(read_runs([make_run(tmp_path / "first")]))
    outline = Outline(text)
    charts = [a["aria-label"]
              for tag, a in outline.tags if tag == "svg" and a.get("class") == "chart"]
    assert len(charts) == 9 and "Test accuracy against bytes sent, all ranks" in charts
    assert "rank 0" in outline.text and "rank 1" in outline.text and "rank 2" not in outline.text
    # val and test of the last evaluation, epoch 19
    assert "88.00 %" in outline.text and "78.00 %" in outline.text
    assert "4.0×" in outline.text and "25.0 %" in outline.text and "100 MB" in outline.text


@pytest.mark.parametrize("n_runs", [2, 12])
def test_every_run_is_a_line_in_every_chart_and_a_row_of_the_table(tmp_path, n_runs):
    runs = read_runs([make_run(tmp_path / f"run{k}", seed=k) for k in range(n_runs)])
    outline = Outline(page(runs))
    lines = [a["data-run"] for tag, a in outline.tags if tag == "g" and "data-run" in a]
    assert all(lines.count(str(k)) == 10 for k in range(n_runs))        # nine charts and the bars
    looks = {(a["class"], a.get("stroke-dasharray"))
             for tag, a in outline.tags if tag == "polyline"}
    assert len(looks) == n_runs


def test_the_page_needs_nothing_from_outside(tmp_path):
    text = page(read_runs([make_run(tmp_path / "a"), make_run(tmp_path / "b")]))
    for tag, attributes in Outline(text).tags:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base")
        assert not {"src", "href", "xlink:href", "srcset", "action"} & set(attributes)
    assert not re.search(r"url\((?!#)|@import|https?://|fetch\(|XMLHttpRequest", text)


def test_charts_are_well_formed_and_inside_their_frame(tmp_path):
    text = page(read_runs([make_run(tmp_path / "a"), make_run(tmp_path / "b", sent=7)]))
    for svg in re.findall(r"<svg class=\"(?:chart|bars)\".*?</svg>", text, re.DOTALL):
        tree = ElementTree.fromstring(svg)
        width = float(tree.get("viewBox").split()[2])
        for line in tree.iter("polyline"):
            points = [tuple(map(float, pair.split(","))) for pair in line.get("points").split()]
            assert len(points) >= 10 and all(math.isfinite(v) for point in points for v in point)
            assert (all(0 <= x <= width for x, _ in points)
                    and [x for x, _ in points] == sorted(x for x, _ in points))


def test_text_of_users_is_escaped(tmp_path):
    evil = "<script>alert(1)</script>&\"'"
    runs = read_runs([make_run(tmp_path / "a"), make_run(tmp_path / "b")])
    runs[0].label, runs[0].path, runs[0].notes = evil, evil, [evil]
    runs[0].config["codec"] = evil
    runs[0].config[evil] = 1
    text = page(runs, title=evil)
    assert evil not in text and "<script>alert" not in text
    outline = Outline(text)
    assert [tag for tag, _ in outline.tags].count("script") == 1
    assert outline.text.count(evil) >= 5


def test_only_settings_that_differ_are_shown(tmp_path):
    runs = read_runs([make_run(tmp_path / "a", hidden=32), make_run(tmp_path / "b", hidden=64),
                      make_run(tmp_path / "c", hidden=32, summary=False)])
    assert tables.differing_settings(runs) == {"hidden": [32, 64, 32]}
    same = read_runs([make_run(tmp_path / "d"), make_run(tmp_path / "e")])
    assert tables.differing_settings(same) == {}
    assert "All settings are the same" in page(same)


def test_one_run_shows_what_is_not_a_default(tmp_path):
    run = read_run(make_run(tmp_path / "a", method="sylvie-s", hidden=32))
    changed = tables.changed_settings(run)
    assert (changed["hidden"] == 32 and changed["codec"] == "1bit" and "dropout" not in changed
            and "name" not in changed)


def test_a_file_cut_short_gives_its_whole_rows_and_a_note(tmp_path):
    path = make_run(tmp_path / "cut", summary=False)
    metrics = os.path.join(path, "metrics.csv")
    text = open(metrics).read()
    open(metrics, "w").write(text[:len(text) - 30])
    run = read_run(path)
    assert run.n_epochs == 19 and any("1 incomplete row left out, 19 used" in note
                                      for note in run.notes)
    assert "incomplete row" in page([run])


def test_rows_that_are_no_numbers_are_left_out(tmp_path):
    path = make_run(tmp_path / "odd")
    metrics = os.path.join(path, "metrics.csv")
    lines = open(metrics).read().splitlines()
    lines[3], lines[5] = lines[3].replace("2,", "x,", 1), lines[5] + ",1,2"
    lines[7] = lines[7].replace(lines[7].split(",")[1], "nan")
    open(metrics, "w").write("\n".join(lines) + "\n")
    assert read_run(path).n_epochs == 17


def test_a_run_without_summary_is_shown_with_a_mean_rank(tmp_path):
    run = read_run(make_run(tmp_path / "going", summary=False))
    (name, seconds), = run.phases_by_rank()
    assert name == "mean rank" and sum(seconds.values()) == pytest.approx(0.1)
    assert "still going" in page([run])


def test_runs_without_evaluation_show_their_loss(tmp_path):
    runs = read_runs([make_run(tmp_path / "blind", eval_every=99)])
    assert [row[0].metric.column for row in make_charts(runs)] == ["loss"]
    text = page(runs)
    assert "no evaluation yet" in text and text.count('class="chart"') == 3


def test_one_rank_sends_no_bytes(tmp_path):
    text = page(read_runs([make_run(tmp_path / "single", sent=0, ranks=1)]))
    assert "one rank has nobody to send to" in text and text.count('class="chart"') == 6


@pytest.mark.parametrize("name, text, note", [
    ("config.toml", "x = " + "[" * 50_000, "config.toml is missing or damaged"),
    ("config.toml", "hidden = " + "9" * 5000, "config.toml is missing or damaged"),
    ("summary.json", "[" * 50_000, "summary.json is damaged"),
    ("summary.json", "9" * 5000, "summary.json is damaged"),
    ("summary.json", None, "summary.json is damaged"), ("config.toml", None, "config.toml is")])
def test_small_files_of_any_damage_become_notes(tmp_path, name, text, note):
    path = make_run(tmp_path / "run")
    (tmp_path / "run" / name).unlink()
    if text is None:
        os.mkfifo(tmp_path / "run" / name)
    else:
        (tmp_path / "run" / name).write_text(text)
    assert any(words.startswith(note) for words in read_run(path).notes)


def test_a_row_that_is_no_row_is_left_out(tmp_path):
    path = make_run(tmp_path / "run", epochs=4)
    metrics = tmp_path / "run" / "metrics.csv"
    metrics.write_bytes(metrics.read_bytes().replace(b"\n3,", b"\n3\r3,"))
    run = read_run(path)
    assert run.n_epochs == 3 and any("left out" in note for note in run.notes)


def test_damaged_companions_become_notes(tmp_path):
    path = make_run(tmp_path / "damaged")
    (tmp_path / "damaged" / "summary.json").write_text('{"epochs": ')
    (tmp_path / "damaged" / "config.toml").write_text("= 3")
    run = read_run(path)
    assert run.summary is None and run.config == {} and len(run.notes) == 2
    odd = '{"by_rank": [7, {"rank": 1}], "peak_memory_bytes": 3, "hidden_share": "x"}'
    (tmp_path / "damaged" / "summary.json").write_text(odd)
    assert "mean rank" in page([read_run(path)])
    huge = "1" + "0" * 400                     # an int that no float can hold
    (tmp_path / "damaged" / "summary.json").write_text(
        '{"hidden_share": HUGE, "by_rank": [{"rank": 0, "compute_seconds": HUGE}]}'
        .replace("HUGE", huge))
    assert huge not in page([read_run(path)])


@pytest.mark.parametrize(("name", "value"), [
    *(("loss", loss) for loss in ("5e-324", "1e-310", "1e308", "-1.7e308")),
    ("seconds", "-1e9"), ("bytes_sent", "-99999999"), ("epoch", "-3")])
def test_numbers_that_no_run_writes_are_drawn(tmp_path, name, value):
    path = make_run(tmp_path / "odd")
    metrics = tmp_path / "odd" / "metrics.csv"
    lines = metrics.read_text().splitlines()
    column = lines[0].split(",").index(name)
    cells = lines[-1].split(",")
    cells[column] = value
    metrics.write_text("\n".join([*lines[:-1], ",".join(cells), ""]))
    assert "<svg" in page([read_run(path)])


def test_labels_tell_runs_of_the_same_name_apart(tmp_path):
    paths = [make_run(tmp_path / "x" / "run"), make_run(tmp_path / "y" / "run")]
    assert [run.label for run in read_runs(paths)] == [os.path.join("x", "run"),
                                                       os.path.join("y", "run")]
    assert len(read_runs([paths[0], paths[0] + "/", paths[1]])) == 2


@pytest.mark.parametrize("make, words", [
    (lambda p: str(p / "nowhere"), "there is no such folder"),
    (lambda p: str(p), "it holds runs, though"),
    (lambda p: str(p / "good" / "metrics.csv"), "give the folder, not a file"),
    (lambda p: os.makedirs(p / "void") or str(p / "void"), "hpcgcn train"),
])
def test_what_is_not_a_run_is_refused_with_one_message(tmp_path, capsys, make, words):
    make_run(tmp_path / "good")
    given = make(tmp_path)
    assert main(["report", given, "-o", str(tmp_path / "r.html")]) == 2
    error = capsys.readouterr().err
    assert given in error and words in error and len(error.splitlines()) == 1
    assert not (tmp_path / "r.html").exists()


def test_metrics_of_something_else_and_empty_ones_are_refused(tmp_path):
    path = make_run(tmp_path / "a")
    (tmp_path / "a" / "metrics.csv").write_text("time,value\n1,2\n")
    with pytest.raises(FileError, match="does not name epoch, loss, seconds"):
        read_run(path)
    # a quote that is not closed makes one field of the whole file
    (tmp_path / "a" / "metrics.csv").write_text('epoch,"loss' + "x" * 200_000 + "\n1,2\n")
    with pytest.raises(FileError, match="does not name epoch, loss, seconds"):
        read_run(path)
    (tmp_path / "a" / "metrics.csv").write_text(",".join(COLUMNS) + "\n")
    with pytest.raises(FileError, match="no epoch is complete yet"):
        read_runs([path])
    both = read_runs([path, make_run(tmp_path / "b")])
    assert [run.n_epochs for run in both] == [0, 20] and "no epoch is complete yet" in page(both)


def test_the_command_writes_the_page_and_overwrites_an_old_one(tmp_path, capsys):
    path, target = make_run(tmp_path / "a"), tmp_path / "r.html"
    assert main(["report", path, "-o", str(target), "--title", "Old title"]) == 0
    assert main(["report", path, "-o", str(target), "--title", "My title"]) == 0
    assert (str(target) in capsys.readouterr().out
            and "<h1>My title</h1>" in target.read_text(encoding="utf-8"))
    assert sorted(os.listdir(tmp_path)) == ["a", "r.html"]


@pytest.mark.parametrize("target", ["missing/r.html", "folder"])
def test_a_page_that_cannot_be_written_is_one_message(tmp_path, capsys, target):
    path = make_run(tmp_path / "a")
    (tmp_path / "folder").mkdir()
    assert main(["report", path, "-o", str(tmp_path / target)]) == 2
    assert "cannot write" in capsys.readouterr().err


def test_png_of_the_curves(tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    paths = [make_run(tmp_path / "a"), make_run(tmp_path / "b", sent=0)]
    assert main(["report", *paths, "--png", str(tmp_path / "curves.png")]) == 0
    assert ((tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
            and not os.path.exists("report.html"))
    assert main(["report", *paths, "--png", str(tmp_path / "missing" / "curves.png")]) == 2


def test_png_without_matplotlib_says_what_to_do(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["report", make_run(tmp_path / "a"), "--png", str(tmp_path / "c.png")]) == 2
    assert "hpcgcn[plot]" in capsys.readouterr().err


def test_thinning_keeps_ends_and_extremes():
    points = [(float(k), math.sin(k / 300)) for k in range(5000)]
    points[3333] = (3333.0, 9.0)
    kept = thinned(points, 100)
    assert (len(kept) <= 100 and kept[0] == points[0] and kept[-1] == points[-1]
            and (3333.0, 9.0) in kept)
    assert kept == sorted(kept)


@pytest.mark.parametrize("low, high, log",
                         [(0, 1, False), (0.8123, 0.8127, False), (-3, 17, False), (0, 3e9, False),
                          (1e-5, 2, True), (900, 1100, True), (3, 4e12, True)])
def test_ticks_are_few_round_and_inside(low, high, log):
    ticks = scales.Scale(low, high, 0, 100, log).ticks(6)
    assert 2 <= len(ticks) <= 7 and ticks == sorted(ticks)
    assert all(low - 1e-9 * abs(high) <= tick <= high * 1.002 for tick in ticks)


@pytest.mark.parametrize("value, text",
                         [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2.34e9, "2.34 GB")])
def test_sizes_in_words(value, text):
    assert scales.size(value) == text


@pytest.mark.parametrize("value, text", [(0.0123, "12.3 ms"), (2.5, "2.5 s"), (4000, "1 h 06 min"),
                                         (600, "10 min 00 s"), (2e-5, "20 µs")])
def test_durations_in_words(value, text):
    assert scales.duration(value) == text


# -- pipelines -------------------------------------------------------------------------------------

def test_pipelines_tell_bubble_balance_and_the_age_of_what_was_read(tmp_path):
    runs = read_runs([make_run(tmp_path / "plain"),
                      make_run(tmp_path / "pipe", method="gnnpipe", layers=8)])
    assert pipelines(runs) == [] and "Pipelines of layers" not in page(runs)
    told = {"stages": 4, "partitions_per_stage": 2, "chunks": 16, "bubble_measured": 0.314,
            "bubble_predicted": 0.158, "balance": 1.07,
            "reads_by_age": {"current": 0.6, "zeros": 0.1, "1": 0.02, "4": 0.03, "23": 0.05,
                             "40": 0.2, "7": "much"}}
    runs[1].summary["pipeline"] = told
    assert [number for number, _ in pipelines(runs)] == [1]
    assert ages_of(runs[1]) == pytest.approx([0.6, 0.02, 0.03, 0, 0.05, 0.2, 0.1])
    text = Outline(page(runs)).text
    for cell in ("4 × 2", "16", "31.4 %", "15.8 %", "1.07", "60.0 %", "5.0 %"):
        assert cell in text
    runs[1].summary["pipeline"] = {"stages": 2, "reads_by_age": ["damaged"]}
    assert "2 × –" in Outline(page(runs)).text


def with_errors(folder, **columns: str) -> str:
    """A run whose metrics have further columns, with the same number in each epoch."""
    path = make_run(folder, method="sylvie-a")
    metrics = folder / "metrics.csv"
    head, *rows = metrics.read_text().splitlines()
    lines = [",".join([head, *columns])] + [",".join([row, *columns.values()]) for row in rows]
    metrics.write_text("\n".join(lines) + "\n")
    return path


def test_errors_of_exchanged_rows_are_drawn_by_hop_and_direction(tmp_path):
    measured = with_errors(tmp_path / "a", change_forward_1="1.1", drift_forward_1="0.2",
                           drift_backward_2="0.4", coding_error_backward_2="2.0")
    plain = make_run(tmp_path / "b")
    assert main(["report", measured, plain, "-o", str(tmp_path / "r.html")]) == 0
    text = (tmp_path / "r.html").read_text()
    assert "Errors of stale and compressed rows" in text
    assert text.count("<figcaption>Hop 1, features</figcaption>") == 2      # drift, change
    assert text.count("<figcaption>Hop 2, gradients</figcaption>") == 2     # drift, coding error
    assert text.index("Drift of stale rows") < text.index("Change of rows") < text.index(
        "Error of coding")


def test_without_measured_errors_there_is_no_section_of_them(tmp_path):
    odd = with_errors(tmp_path / "a", **{"change_sideways_1": "1", "drift_forward_x": "1",
                                         "drift_forward_1<b>": "1", "drift_forward_2": ""})
    assert main(["report", odd, "-o", str(tmp_path / "r.html")]) == 0
    assert "Errors of stale" not in (tmp_path / "r.html").read_text()
