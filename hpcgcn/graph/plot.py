"""A picture of what a graph file holds: degrees, classes, splits, and the numbers in words."""

from __future__ import annotations

import os

from hpcgcn.errors import ConfigError, FileError
from hpcgcn.files.atomic import atomic_file
from hpcgcn.files.replace import NOTHING, Replaces

_ENDINGS = (".png", ".pdf", ".svg")
_COLOURS = {"train": "#2b6cb0", "val": "#dd8e2a", "test": "#5f8f4e"}


def check_image_name(path: str | os.PathLike):
    """Refuse a name that does not tell what kind of image is meant."""
    ending = os.path.splitext(path)[1]
    if ending.lower() not in _ENDINGS:
        raise ConfigError(f"--plot {path}: the ending "
                          f"{f'{ending} is not known' if ending else 'is missing'}; expected a "
                          f"name that ends in {', '.join(_ENDINGS[:-1])} or {_ENDINGS[-1]}")


def plot_graph(facts: dict, path: str | os.PathLike, replaces: Replaces = NOTHING):
    """Draw the facts of `describe` into an image file (.png, .pdf, .svg)."""
    try:
        import matplotlib
        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        raise ConfigError("--plot needs matplotlib, which is not installed: pip install "
                          "hpcgcn[plot]") from None
    contents = facts.get("contents")
    if not contents or "degree_histogram" not in contents:
        raise FileError(f"{facts['path']} holds no sound graph to draw; expected a graph or "
                        "partition file")
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 3.8), constrained_layout=True)
    _draw_degrees(left, contents, facts["header"]["directed"])
    _draw_classes(middle, contents)
    _draw_words(right, facts)
    figure.suptitle(
        f"{os.path.basename(facts['path'])}   {facts['header'].get('source', '')}".strip(),
        fontsize=11)
    try:
        with atomic_file(path, replaces, [facts["path"]]) as temporary:
            figure.savefig(temporary, dpi=130)
    finally:
        plt.close(figure)


def _draw_degrees(axes, contents: dict, directed: bool):
    bins = contents["degree_histogram"]
    axes.bar(range(len(bins)), [count for _, _, count in bins], color=_COLOURS["train"])
    names = [str(low) if low == high else f"{low}-{high}" for low, high, _ in bins]
    axes.set_xticks(range(len(bins)), names, rotation=60, fontsize=7)
    few = max(count for _, _, count in bins) < 100
    axes.set_yscale("log", subs=(2, 5))
    axes.set_ylim(bottom=0.5)              # a single node has a bar too
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_minor_formatter(lambda value, _: f"{value:.0f}" if few and value >= 1 else "")
    axes.set(title=f"{'in-' if directed else ''}degree distribution",
             xlabel="in-neighbours" if directed else "neighbours", ylabel="nodes")


def _draw_classes(axes, contents: dict):
    if not contents["labelled_nodes"]:
        axes.text(0.5, 0.5, "no labels", ha="center", va="center", transform=axes.transAxes)
        axes.set_axis_off()
        return
    sizes = contents["class_sizes"]
    by_class = contents.get("split_by_class")
    axes.bar(range(len(sizes)), sizes, color="#d0d4da", label="all")
    if by_class:
        bottom = [0] * len(sizes)
        for name, counts in by_class.items():
            axes.bar(range(len(sizes)), counts, bottom=bottom, color=_COLOURS[name], label=name)
            bottom = [a + b for a, b in zip(bottom, counts)]
        axes.legend(fontsize=7, frameon=False, ncols=4, loc="upper center",
                    bbox_to_anchor=(0.5, -0.17))
    axes.set(title="classes" + (" and first split" if by_class else ""), xlabel="class",
             ylabel="nodes")
    for axis in (axes.xaxis, axes.yaxis):
        axis.get_major_locator().set_params(integer=True, min_n_ticks=1)


def _draw_words(axes, facts: dict):
    head, contents = facts["header"], facts["contents"]
    directed, parts = head["directed"], contents["components"]
    rows = [("nodes", f"{head['n_nodes']:,}"),
            ("entries", f"{head['n_edges']:,} ({'directed' if directed else 'both ways'})"),
            ("features", f"{head['n_features']:,}"), ("classes", head["n_classes"]),
            (f"mean {'in-' if directed else ''}degree", f"{contents['degree']['mean']:.2f}"),
            ("isolated", f"{contents['isolated_nodes']:,}"), ("components", f"{parts['count']:,}"),
            ("largest", f"{parts['largest']:,} nodes")]
    if "homophily" in contents:
        rows.append(("homophily",
                     "{edges:.3f} (by chance {expected:.3f})".format(**contents["homophily"])))
    for number, counts in enumerate(head.get("split_counts", [])[:3]):
        rows.append((f"split {number}", " / ".join(f"{n:,}" for n in counts.values())))
    words = "\n".join(f"{name:<14}  {value}" for name, value in rows)
    axes.text(0.0, 0.97, words, family="monospace", fontsize=9, va="top", transform=axes.transAxes)
    axes.set_axis_off()
