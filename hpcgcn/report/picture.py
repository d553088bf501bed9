"""The curves alone, as a picture, with matplotlib."""

from __future__ import annotations

from hpcgcn.errors import FileError, HpcgcnError
from hpcgcn.files.atomic import atomic_file
from hpcgcn.files.replace import NOTHING, Replaces
from hpcgcn.report.curves import Chart, make_charts
from hpcgcn.report.runs import Run
from hpcgcn.report.svg import COLOURS, DASHES, write_x

# as page.css, light
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#b5609a", "#c98a00", "#4aa3dc", "#6b7280")


def write_picture(path: str, runs: list[Run], replaces: Replaces = NOTHING):
    """Write the curves as PNG (or whatever the ending says: svg, pdf)."""
    try:
        import matplotlib
    except ImportError:
        raise HpcgcnError("--png needs matplotlib, which is not installed: pip install "
                          "'hpcgcn[plot]' (the HTML page, -o, needs nothing)") from None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    rows = make_charts(runs)
    figure, axes = plt.subplots(len(rows), 3, figsize=(13, 3.3 * len(rows)), squeeze=False,
                                layout="constrained")
    for row, panels in zip(rows, axes):
        for chart, panel in zip(row, panels):
            _draw(chart, panel)
        panels[0].set_ylabel(row[0].metric.title + (" (%)" if row[0].metric.percent else ""))
    handles = [plt.Line2D([], [], label=run.label, **line_look(number))
               for number, run in enumerate(runs)]
    figure.legend(handles=handles, loc="outside upper center", ncols=min(len(runs), 4),
                  frameon=False)
    try:
        with atomic_file(path, replaces, [run.path for run in runs]) as temporary:
            figure.savefig(temporary, dpi=140)
    except ValueError as error:
        raise FileError(f"cannot write {path}: {error}") from None
    finally:
        plt.close(figure)


def line_look(number: int) -> dict:
    """Colour and dash of a run's lines, as matplotlib wants them."""
    dash = DASHES[number // COLOURS % len(DASHES)]
    return {"color": PALETTE[number % COLOURS], "linewidth": 1.5,
            "linestyle": (0, tuple(map(float, dash.split()))) if dash else "-"}


def _draw(chart: Chart, panel):
    panel.set_xlabel(chart.axis.title)
    panel.spines[["top", "right"]].set_visible(False)
    if not chart.lines:
        panel.text(0.5, 0.5, "no bytes were sent", ha="center", va="center", color="gray",
                   transform=panel.transAxes)
        return
    for line in chart.lines:
        panel.plot(*zip(*line.points), marker="." if len(line.points) == 1 else "",
                   **line_look(line.number))
        if line.best:
            panel.plot(*line.best, "o", markersize=5, markerfacecolor="white",
                       markeredgecolor=PALETTE[line.number % COLOURS])
    panel.set(xscale="log" if chart.log_x else "linear", yscale="log" if chart.log_y else "linear",
              xlim=chart.x_range, ylim=chart.y_range)
    panel.grid(axis="y", color="0.9")
    if chart.axis.kind != "epochs":
        panel.xaxis.set_major_formatter(lambda value, _: write_x(chart.axis.kind, value))
        panel.xaxis.set_minor_formatter(lambda value, _: "")
