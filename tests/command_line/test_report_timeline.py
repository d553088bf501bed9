"""The timeline of a report in a real browser, for four methods on four ranks."""

import json
import re

import pytest
from many_runs import job, run_many
from test_report_page import CHROMIUM, browse

from hpcgcn.cli import main
from hpcgcn.graph.generate import generate_sbm
from hpcgcn.graph.store import write_graph

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: apt-get install "
                                                         "chromium runs these tests")
METHODS = ("vanilla", "overlap", "pipegcn", "gnnpipe")

# Zooms by button, wheel and double click, moves by dragging, rests on an activity and on messages
# in flight, and leaves what happened in the page's title.
PROBE = """<script>
window.addEventListener("error", event => { document.title = "ERROR " + event.message; });
window.addEventListener("load", () => {
  const canvases = [...document.querySelectorAll("canvas.timeline")], canvas = canvases[1];
  const frame = document.querySelector(".timelines"), tip = document.getElementById("tip");
  const data = JSON.parse(canvas.parentNode.querySelector("script").textContent);
  const box = canvas.getBoundingClientRect(), views = [frame.dataset.view];
  const at = (x, y) => ({ clientX: box.left + x, clientY: box.top + y, bubbles: true,
                          cancelable: true });
  const stopOf = c => JSON.parse(c.parentNode.querySelector("script").textContent).stop;
  const longest = Math.max(...canvases.map(stopOf));
  const place = tenths => 62 + tenths / longest * (box.width - 62);
  const rest = (tenths, y) => {
    canvas.dispatchEvent(new PointerEvent("pointermove", at(place(tenths), y)));
    return tip.hidden ? "" : tip.textContent;
  };
  const longer = stop => (a, b) => b[stop] - b[0] > a[stop] - a[0] ? b : a;
  const span = data.ranks[0].spans.filter(s => s[0] >= 0).reduce(longer(1));
  const flight = data.ranks[0].flights.filter(f => f[3] === 0).reduce(longer(2));
  const said = [rest((span[0] + span[1]) / 2, 16 + 7),
                rest((flight[0] + flight[2]) / 2, 16 + 15 + 2 + 2)];
  const acts = [
    () => document.querySelector('.tools [data-do="in"]').click(),
    () => canvas.dispatchEvent(new WheelEvent("wheel", { ...at(300, 20), deltaY: -1,
                                                         ctrlKey: true })),
    () => canvas.dispatchEvent(new MouseEvent("dblclick", at(300, 20))),
    () => { canvas.dispatchEvent(new PointerEvent("pointerdown", at(400, 20)));
            canvas.dispatchEvent(new PointerEvent("pointermove", at(300, 20)));
            canvas.dispatchEvent(new PointerEvent("pointerup", at(300, 20))); },
    () => document.querySelector('.tools [data-do="fit"]').click(),
    () => document.querySelector('.tools [data-do="messages"]').click()];   // draws at once
  const next = () => {
    const act = acts.shift();
    if (!act) {
      const pixels = canvases.map(c => {
        const drawn = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
        const seen = new Set();
        for (let k = 0; k < drawn.length; k += 4)
          if (drawn[k + 3] === 255) seen.add(drawn.slice(k, k + 3).join());
        return seen.size;
      });
      const hidden = canvases.map(c => Number(c.dataset.hidden));
      document.title = JSON.stringify({ views, said, pixels, hidden });
      return;
    }
    act();
    views.push(frame.dataset.view);
    next();
  };
  next();
});
</script>"""


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """(folder with a report of the runs, what they left)."""
    folder = tmp_path_factory.mktemp("timelines")
    write_graph(folder / "g.h5", generate_sbm(2000, 20, 16, 4, seed=1))
    jobs = [job(name, "g.h5", method=name, model="gcnii", layers=4, hidden=32, trace="last:2",
                epochs=6) for name in METHODS]
    left = run_many(4, jobs, folder)
    assert main(["report", *(str(folder / "runs" / name) for name in METHODS), "-o",
                 str(folder / "report.html")]) == 0
    return folder, left


@pytest.fixture(scope="module")
def seen(results):
    """What the probe tells."""
    folder, _ = results
    probed = folder / "probed.html"
    probed.write_text((folder / "report.html").read_text(encoding="utf-8").replace(
        "</body>", PROBE + "</body>"), encoding="utf-8")
    dom = browse(folder, "--window-size=1300,900", "--dump-dom", probed.as_uri())
    title = re.search(r"<title>(.*?)</title>", dom).group(1)
    assert title.startswith("{"), title
    return json.loads(title.replace("&amp;", "&").replace("&quot;", '"'))


def test_the_shaded_overlap_is_the_hidden_share_of_the_metrics(results, seen):
    for name, hidden in zip(METHODS, seen["hidden"]):
        rows = results[1][name]["rows"][-2:]
        waited, flying = (sum(float(row[f"{what}_seconds"]) for row in rows)
                          for what in ("wait", "flight"))
        assert hidden == pytest.approx(1 - waited / flying, abs=0.02), name


def test_it_zooms_moves_and_returns(seen):
    spans = [[int(end) for end in view.split()] for view in seen["views"]]
    widths = [stop - start for start, stop in spans]
    button, wheel, click, drag, fit, messages = range(1, 7)
    assert widths[button] == pytest.approx(widths[0] / 2, rel=0.01)
    assert widths[wheel] == pytest.approx(0.8 * widths[button], rel=0.01)
    assert widths[click] == pytest.approx(0.4 * widths[wheel], rel=0.01)
    assert widths[drag] == pytest.approx(widths[click], abs=2) and spans[drag] > spans[click]
    assert spans[messages] == spans[fit] == spans[0]


def test_resting_on_it_names_activity_and_messages(seen):
    activity, messages = seen["said"]
    assert re.match(r"rank 0 on .+", activity) and re.search(r"[\d.]+ (ms|µs)$", activity)
    assert "messages in flight, hop" in messages and "waited for" in messages


def test_every_run_is_drawn(seen):
    assert len(seen["pixels"]) == len(METHODS) and min(seen["pixels"]) >= 8     # colours


def test_a_damaged_trace_becomes_a_note(results, tmp_path):
    import shutil
    run = shutil.copytree(results[0] / "runs" / "overlap", tmp_path / "broken")
    (run / "trace.json").write_text('{"format": "hpcgcn-trace"}')
    assert main(["report", str(run), "-o", str(tmp_path / "r.html")]) == 0
    text = (tmp_path / "r.html").read_text()
    assert "trace.json is damaged" in text and "<canvas" not in text
