"""A picture of what a graph file holds: degrees, classes, splits, and the numbers in words."""

from __future__ import annotations

import os

from hpcgcn.errors import ConfigError, FileError
from hpcgcn.formats.output import atomic_file

_COLOURS = {"train": "#2b6cb0", "val": "#dd8e2a", "test": "#5f8f4e"}


def plot_graph(facts: dict, path: str | os.PathLike):
    """Draw the facts of `describe` into an image file (.png, .pdf, .svg)."""
    try:
        import matplotlib
        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        raise ConfigError("--plot needs matplotlib, which is not installed: pip install hpcgcn[plot]") from None
    contents = facts.get("contents")
    if not contents or "degree_histogram" not in contents:
        raise FileError(f"{facts['path']} holds no sound graph to draw; expected a graph or partition file")
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 3.8), constrained_layout=True)
    _draw_degrees(left, contents)
    _draw_classes(middle, contents, facts["header"])
    _draw_words(right, facts)
    figure.suptitle(f"{os.path.basename(facts['path'])}   {facts['header'].get('source', '')}".strip(), fontsize=11)
    try:
        with atomic_file(path) as temporary:
            figure.savefig(temporary, dpi=130)
    except ValueError as error:
        raise FileError(f"cannot write {path}: {error}; give a name that ends in .png, .pdf or .svg, in a folder that "
                        "exists") from None
    finally:
        plt.close(figure)


def _draw_degrees(axes, contents: dict):
    bins = contents["degree_histogram"]
    axes.bar(range(len(bins)), [count for _, _, count in bins], color=_COLOURS["train"])
    names = [str(low) if low == high else f"{low}-{high}" for low, high, _ in bins]
    axes.set_xticks(range(len(bins)), names, rotation=60, fontsize=7)
    axes.set_yscale("log")
    axes.set(title="degree distribution", xlabel="in-neighbours", ylabel="nodes")


def _draw_classes(axes, contents: dict, head: dict):
    sizes = contents["class_sizes"]
    by_class = contents.get("split_by_class")
    axes.bar(range(len(sizes)), sizes, color="#d0d4da", label="all")
    if by_class:
        bottom = [0] * len(sizes)
        for name, counts in by_class.items():
            axes.bar(range(len(sizes)), counts, bottom=bottom, color=_COLOURS[name], label=name)
            bottom = [a + b for a, b in zip(bottom, counts)]
        axes.legend(fontsize=7, frameon=False)
    axes.set(title="classes" + (" and first split" if by_class else ""), xlabel="class", ylabel="nodes")


def _draw_words(axes, facts: dict):
    head, contents = facts["header"], facts["contents"]
    lines = [f"nodes        {head['n_nodes']:,}",
             f"entries      {head['n_edges']:,} ({'directed' if head['directed'] else 'both ways'})",
             f"features     {head['n_features']:,}", f"classes      {head['n_classes']}",
             f"mean degree  {contents['degree']['mean']:.2f}", f"isolated     {contents['isolated_nodes']:,}",
             f"components   {contents['components']['count']:,}", f"largest      {contents['components']['largest']:,} nodes"]
    if "homophily" in contents:
        lines.append(f"homophily    {contents['homophily']['edges']:.3f} (by chance {contents['homophily']['expected']:.3f})")
    for number, counts in enumerate(head.get("split_counts", [])[:3]):
        lines.append(f"split {number}      " + " / ".join(f"{n:,}" for n in counts.values()))
    axes.text(0.0, 0.97, "\n".join(lines), family="monospace", fontsize=9, va="top", transform=axes.transAxes)
    axes.set_axis_off()
