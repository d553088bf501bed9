"""The day on a GPU, rehearsed on the stand-in: every step runs or says why not, a failure stops no
other, and one page tells it all."""

import json
import os
import stat
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from gpu import sanitizer  # noqa: E402 - benchmarks are no package that is installed
from gpu.page import page  # noqa: E402
from gpu.steps import Day, Failure, Skip, Table, carry_out  # noqa: E402

NOISE = """\
========= COMPUTE-SANITIZER
========= Program hit CUDA_ERROR_INVALID_VALUE (error 1) due to "invalid argument" on CUDA API call to cuPointerGetAttributes.
=========     Saved host backtrace up to driver entry point at error
=========     Host Frame: [0x30b4d7]
=========                in /usr/lib/x86_64-linux-gnu/libcuda.so.1
=========     Host Frame:uct_cuda_base_query_md_resources [0x81f2]
=========                in /opt/ucx/lib/ucx/libuct_cuda.so.0
=========
"""  # noqa: E501 - as it is printed
OURS = """\
========= Invalid __global__ read of size 4 bytes
=========     at void gather_rows<float, (bool)1>(const float *, const int *)+0x140
=========     by thread (3,0,0) in block (1,0,0)
=========     Address 0x7f2d5e000200 is out of bounds
=========
"""
ANOTHER_CALL = NOISE.replace("cuPointerGetAttributes", "cuMemcpyDtoHAsync_v2")
SUMMARY = "========= ERROR SUMMARY: 1 error\n"


@pytest.mark.parametrize("printed, ours, noise", [
    (NOISE + SUMMARY, 0, 1), (NOISE + "loss 0.5\n" + NOISE + OURS + SUMMARY, 1, 2),
    (OURS.replace("=========\n", "") + SUMMARY, 1, 0),     # the summary follows at once
    (ANOTHER_CALL + SUMMARY, 1, 0), ("========= COMPUTE-SANITIZER\n" + SUMMARY, 0, 0),
    (NOISE.replace("libuct_cuda", "libelse").replace("uct_", "x_") + SUMMARY, 1, 0)],
    ids=["noise", "a report among noise", "no empty line", "another call", "nothing",
         "the same call by others"])
def test_only_questions_that_mpi_asks_about_pointers_are_noise(printed, ours, noise):
    reports, n_noise = sanitizer.split(printed)
    assert (len(reports), n_noise) == (ours, noise)
    assert sanitizer.finished(printed)


def test_a_failed_step_stops_no_other_and_is_told(tmp_path):
    def partly(day, found):
        found.tables.append(Table(["way", "ms"], [["staged", "1.5"]]))
        raise Failure("nccl failed\nits <last> line")

    def absent(day, found):
        raise Skip("no such tool here")

    def broken(day, found):
        raise KeyError("a mistake of ours")

    def fine(day, found):
        found.notes.append("all well")
    day = Day(tmp_path, rehearsal=True, n_devices=2)
    outcomes = [carry_out(day, step.__name__, step) for step in (partly, absent, broken, fine)]
    assert [o.state for o in outcomes] == ["failed", "skipped", "failed", "done"]
    text = page(day, outcomes, {"cpu": "a CPU", "cores": 2})
    for expected in ("1 done, 2 failed, 1 skipped", "no such tool here", "<td>staged</td>",
                     "its &lt;last&gt; line", "KeyError", "all well", "REHEARSAL"):
        assert expected in text, expected


def test_a_program_that_hangs_or_fails_is_a_failure(tmp_path):
    day = Day(tmp_path, rehearsal=True, n_devices=1)
    with pytest.raises(Failure, match="no end within 1 s"):
        day.run("sleeps", [sys.executable, "-c", "import time; time.sleep(60)"], 1)
    with pytest.raises(Failure, match="(?s)exit code 3.*the reason"):
        day.run("fails", [sys.executable, "-c", "print('the reason'); raise SystemExit(3)"], 60)


# -- whole days ------------------------------------------------------------------------------------

def run_day(folder: Path, *words: str, **env: str) -> tuple[int, list[dict], str]:
    """The exit code, the outcomes, and the page."""
    done = subprocess.run([sys.executable, ROOT / "benchmarks" / "gpu_day.py", "--output", folder,
                           *words], env={**os.environ, "HPCGCN_CUDA_STAND_IN": "1", **env},
                          capture_output=True, text=True, timeout=550)
    assert done.returncode in (0, 1), done.stderr
    return (done.returncode, json.loads((folder / "report.json").read_text()),
            (folder / "report.html").read_text())


class Tags(HTMLParser):
    """Whether every element of a page is closed."""

    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, attrs):
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.jobs
@pytest.mark.slow
@pytest.mark.one_machine
@pytest.mark.timeout(600)
def test_the_whole_day_on_the_stand_in(stand_in, tmp_path):
    folders = [p for p in os.environ["PATH"].split(":")
               if not Path(p, "compute-sanitizer").exists()]
    code, outcomes, text = run_day(tmp_path, PATH=":".join(folders))
    states = {outcome["title"]: (outcome["state"], outcome["reason"]) for outcome in outcomes}
    for title, (state, reason) in states.items():
        if "compute-sanitizer" in title:
            assert state == "skipped" and "compute-sanitizer is not on the path" in reason
        else:
            assert state == "done", (title, reason)
    assert code == 0 and len(states) == 14
    tables = {outcome["title"]: outcome["found"]["tables"] for outcome in outcomes}
    ways = tables["messages: staged, CUDA-aware, NCCL"][0]["rows"]
    assert [row[0] for row in ways[:3]] == ["staged", "cuda-aware", "nccl"]
    assert all(float(row[1]) > 0 and float(row[3]) < 1e-5 for row in ways[:3])
    assert len(tables["an epoch as a CUDA graph"][0]["rows"]) == 2
    assert [row[0] for row in tables["scaling over the GPUs of this node"][0]["rows"]] == ["1", "2"]
    tags = Tags()
    tags.feed(text)
    assert tags.open == [] and all(title in text for title in states)


SANITIZER = f"""#!{sys.executable}
import os, subprocess, sys
tool, log, program = sys.argv[2], sys.argv[6], sys.argv[7:]
code = subprocess.call(program)
with open(log.replace("%p", str(os.getpid())), "w") as out:
    out.write({NOISE!r})
    if tool == "racecheck":
        out.write({OURS!r})
    if tool != "initcheck":
        out.write({SUMMARY!r})
sys.exit(code)
"""


@pytest.mark.jobs
@pytest.mark.slow
@pytest.mark.one_machine
@pytest.mark.timeout(300)
def test_reports_of_the_sanitizer_fail_its_step_alone(stand_in, tmp_path):
    """In its place here: a program that runs what it is given and prints what it would."""
    program = tmp_path / "bin" / "compute-sanitizer"
    program.parent.mkdir()
    program.write_text(SANITIZER)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    code, outcomes, text = run_day(tmp_path / "day", "--only", "racecheck", "synccheck",
                                   "initcheck", PATH=f"{program.parent}:{os.environ['PATH']}")
    race, sync, silent = outcomes
    assert code == 1 and [o["state"] for o in outcomes] == ["failed", "done", "failed"], outcomes
    assert "wrote no summary" in silent["found"]["printed"]
    assert "Invalid __global__ read" in text and "cuPointerGetAttributes" not in text
    assert sync["found"]["tables"][0]["rows"] == [["operations", "0", "1"],
                                                  ["training on 2 ranks", "0", "2"]]
