"""The report in a real browser: it draws, its script runs, and it is readable in light, dark and on
paper."""

import re
import shutil
import subprocess

import pytest
from test_report import make_run

from hpcgcn.cli import main

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))),
                None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: apt-get install "
                                                         "chromium runs these tests")

# Moves the pointer over the first chart, hides the first run, and leaves what happened in the
# page's title.
PROBE = """<script>
window.addEventListener("error", event => { document.title = "ERROR " + event.message; });
window.addEventListener("load", () => {
  const box = document.querySelector("svg.chart").getBoundingClientRect();
  document.querySelector("svg.chart").dispatchEvent(
    new PointerEvent("pointermove", {
        clientX: box.left + box.width / 2, clientY: box.top + box.height / 2 }));
  const tip = document.getElementById("tip");
  const rows = [...tip.querySelectorAll("tr")].map(row => row.textContent.trim());
  document.querySelector(".legend button").click();
  const groups = [...document.querySelectorAll("svg .run.r0")];
  const hidden = groups.every(group => getComputedStyle(group).display === "none");
  const wide = document.documentElement.scrollWidth > document.documentElement.clientWidth;
  document.title = JSON.stringify({ shown: !tip.hidden, rows, hidden, wide });
});
</script>"""


def browse(folder, *options):
    """Run the browser once; returns what it printed."""
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
               f"--user-data-dir={folder / 'profile'}"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    runs = [make_run(folder / f"{method}-run", method=method, sent=sent)
            for method, sent in (("vanilla", 4000), ("pipegcn", 4000), ("sylvie-s", 170))]
    assert main(["report", *runs, "-o", str(folder / "report.html")]) == 0
    return folder / "report.html"


def test_hovering_shows_all_runs_and_the_legend_hides_one(report, tmp_path):
    probed = tmp_path / "probed.html"
    probed.write_text(report.read_text(encoding="utf-8").replace("</body>", PROBE + "</body>"),
                      encoding="utf-8")
    dom = browse(tmp_path, "--window-size=1300,900", "--dump-dom", probed.as_uri())
    found = re.search(r"<title>(.*?)</title>", dom).group(1)
    assert '"shown":true' in found and '"hidden":true' in found and '"wide":false' in found, found
    assert all(f"{method}-run" in found for method in ("vanilla", "pipegcn", "sylvie-s"))


@pytest.mark.parametrize("scheme, dark", [(1, False), (0, True)], ids=["light", "dark"])
def test_a_screenshot_has_paper_ink_and_the_colours_of_the_runs(report, tmp_path, scheme, dark):
    image = pytest.importorskip("matplotlib.image",
                                reason="matplotlib reads the screenshot and is not installed")
    picture = tmp_path / "shot.png"
    browse(tmp_path, "--window-size=1300,2000", f"--blink-settings=preferredColorScheme={scheme}",
           f"--screenshot={picture}", report.as_uri())
    pixels = image.imread(picture)[..., :3]
    assert pixels.shape[:2] == (2000, 1300)
    assert (pixels[5, 5].mean() < 0.2) == dark
    # Lines, bars and text: a page whose charts failed to draw is nearly all paper.
    coloured = (pixels.max(axis=2) - pixels.min(axis=2) > 0.25).mean()
    assert coloured > 0.01


def test_it_prints(report, tmp_path):
    browse(tmp_path, "--no-pdf-header-footer", f"--print-to-pdf={tmp_path / 'report.pdf'}",
           report.as_uri())
    content = (tmp_path / "report.pdf").read_bytes()
    assert content.startswith(b"%PDF") and 1 <= len(re.findall(rb"/Type\s*/Page\b", content)) <= 6
