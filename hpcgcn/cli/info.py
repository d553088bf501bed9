"""hpcgcn info: what a file or the folder of a run is, what it holds, and whether it is sound."""

from __future__ import annotations

import argparse
import json
import os

from hpcgcn.cli import text
from hpcgcn.cli.output import add_overwrite, foreign
from hpcgcn.errors import printable

_HIDDEN = ("kind", "format", "settings", "split_counts")    # shown in their own places
_DRAWN = ("degree_histogram", "class_sizes", "class_names", "split_by_class",
          "training_nodes")
_MOST_CLASSES = 20


def add_arguments(parser: argparse.ArgumentParser):
    """Declare the arguments of this command."""
    parser.add_argument("file", help="any file that hpcgcn wrote, or the folder of a run or "
                                     "checkpoint")
    parser.add_argument("--json", action="store_true", help="print all facts as JSON")
    parser.add_argument("--plot", metavar="IMAGE", help="draw degrees, classes and splits into a "
                                                        ".png, .pdf or .svg")
    add_overwrite(parser, "an image or another file (--plot)")


def run(args: argparse.Namespace) -> int:
    """Run this command; returns the exit code."""
    from hpcgcn.info.describe import describe

    model = os.path.join(args.file, "model.h5")
    if os.path.isdir(args.file) and not os.path.exists(model):
        return _show_run(args)
    if os.path.isdir(args.file):
        args.file = model                # of a checkpoint
    if args.plot:
        from hpcgcn.files.replace import check_target
        from hpcgcn.graph.plot import check_image_name, plot_graph
        check_image_name(args.plot)
        check_target(args.plot, foreign(args.overwrite), [args.file])
    facts = describe(args.file)
    print(json.dumps({**facts, "sound": not facts["problems"]}, indent=2) if args.json
          else _as_text(facts))
    if args.plot:
        plot_graph(facts, args.plot, foreign(args.overwrite))
    return 2 if facts["problems"] else 0


def _show_run(args: argparse.Namespace) -> int:
    from hpcgcn.errors import ConfigError
    from hpcgcn.report.describe import describe_run
    if args.plot:
        raise ConfigError(f"--plot draws a graph, and {args.file} is a folder; `hpcgcn report "
                          f"{args.file}` "
                          f"draws the curves of a run")
    facts = describe_run(args.file)
    print(json.dumps(facts, indent=2) if args.json else _run_as_text(facts))
    return 0


def _run_as_text(facts: dict) -> str:
    shown = {name.replace("_", " "): value for name, value in facts.items()
             if name not in ("path", "settings", "notes") and value is not None and value != []}
    sections = [text.pairs([("folder", facts["path"]),
                            *((name, _short(value)) for name, value in shown.items())]),
                _named("settings that are not the defaults", facts["settings"]),
                "\n".join(f"note: {note}" for note in facts["notes"])]
    return "\n\n".join(section for section in sections if section)


def _as_text(facts: dict) -> str:
    head, contents = facts["header"], facts.get("contents", {})
    degree = "in-degree" if head.get("directed") else "degree"
    shown = {degree if name == "degree" else name: value
             for name, value in contents.items() if name not in _DRAWN}
    sections = [text.pairs(
        [("file", f"{facts['path']} ({text.size(facts['bytes'])})"), ("kind", head["kind"]),
         *((name, value) for name, value in head.items() if name not in _HIDDEN and value != "")]),
                _named("settings", head.get("settings", {})),
                _splits([] if facts["problems"] else head.get("split_counts", [])),
                _named("contents", shown),
                _degrees(f"{degree}s", contents),
                _classes(contents),
                text.table(["dataset", "type", "shape", "size"],
                           [[d["name"], d["dtype"], " x ".join(map(str, d["shape"])),
                             text.size(d["bytes"])] for d in facts["datasets"]]),
                _verdict(facts["problems"], contents)]
    return "\n\n".join(section for section in sections if section)


def _named(title: str, values: dict) -> str:
    return title + "\n" + text.pairs([(f"  {name}", _short(value))
                                      for name, value in values.items()]) if values else ""


def _degrees(title: str, contents: dict) -> str:
    """Nodes by degree, as bars."""
    bins = contents.get("degree_histogram", [])
    rows = [(str(low) if low == high else f"{low}-{high}", count) for low, high, count in bins]
    return title + "\n" + text.bars(rows) if rows else ""


def _classes(contents: dict) -> str:
    """Nodes of every class, as bars; of the largest ones if there are many."""
    sizes, names = contents.get("class_sizes", []), contents.get("class_names", [])
    order = sorted(range(len(sizes)), key=lambda k: -sizes[k])[:_MOST_CLASSES]
    title = "classes"
    if len(sizes) > _MOST_CLASSES:
        title += f" (the {_MOST_CLASSES} largest of {len(sizes)})"
    return title + "\n" + text.bars([(_class_name(k, names), sizes[k])
                                           for k in sorted(order)]) if sizes else ""


def _class_name(number: int, names: list[str]) -> str:
    return f"{number} {printable(names[number], 40)}" if number < len(names) else str(number)


def _splits(counts: list[dict]) -> str:
    if not counts:
        return ""
    return text.table(["split", *counts[0]], [[number, *(f"{n:,}" for n in row.values())]
                                              for number, row in enumerate(counts)])


def _short(value, most: int = 100) -> str:
    """A value on one line, cut where it would fill the screen."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {_short(item)}" for name, item in value.items())
    if isinstance(value, float):
        return f"{value:.6g}"
    shown = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    return shown if len(shown) <= most else shown[:most - 4] + " ..."


def _verdict(problems: list[str], contents: dict) -> str:
    if problems:
        return "NOT SOUND:\n" + "\n".join(f"  - {printable(problem, text.MOST_CELL)}"
                                          for problem in problems)
    if any(contents.get("training_nodes", [1])):
        return "sound: checksums, ranges and order are right"
    return "sound, but for prediction alone: no node of any split is for training"
