"""Tables and plots of the methods benchmark, from the run folders it left."""

from __future__ import annotations

import json
import os
import shlex
import statistics

from common import machine, markdown_table

from hpcgcn.report import scales
from hpcgcn.report.picture import line_look
from hpcgcn.report.runs import Run, read_run

LIMIT = 0.5                # points of accuracy that a method may lose


def write_results(args, jobs: list[dict], settings: dict, path: str):
    """The Markdown table, the JSON with everything in it, and the plots."""
    by_label: dict[str, list] = {}
    for job in jobs:
        by_label.setdefault(job["label"], []).append(_outcome(job))
    # Each seed has a target of its own: splits differ in how hard they are.
    targets = [args.target * _score(run) for run in by_label["vanilla"]]
    rows = [_row(label, runs, by_label["vanilla"], targets) for label, runs in by_label.items()]
    name = os.path.splitext(os.path.basename(path))[0]
    chosen = " --methods " + shlex.join(args.methods) if args.methods else ""
    facts = {"graph": name, "command": f"python benchmarks/methods.py {name}{chosen}",
             "ranks": args.ranks, "seeds": args.seeds, "settings": settings, "targets": targets,
             "target_share": args.target, "machine": machine()}
    os.makedirs(args.results, exist_ok=True)
    stem = os.path.join(args.results, f"methods-{name}")
    with open(f"{stem}.json", "w") as file:
        json.dump(facts | {"methods": rows}, file, indent=1)
    with open(f"{stem}.md", "w") as file:
        file.write(_markdown(facts, rows))
    _plots(f"{stem}.png", facts, by_label)
    print(f"{stem}.md, .json, .png")


def _outcome(job: dict) -> Run | str:
    """The run of a job, or why it failed."""
    folder = os.path.join(job["settings"]["output"], job["settings"]["name"])
    if os.path.exists(failure_of(folder)):
        with open(failure_of(folder)) as file:
            return json.load(file)["message"]
    return read_run(folder)


def failure_of(folder: str) -> str:
    """Where the error message of a run that failed is kept."""
    return folder + ".failed.json"


def _score(run: Run) -> float:
    """Test accuracy in per cent at the best validation accuracy."""
    return 100 * run.best()[2]


def _row(label: str, outcomes: list, vanilla: list[Run], targets: list[float]) -> dict:
    runs = [run for run in outcomes if isinstance(run, Run)]
    if len(runs) < len(outcomes):
        return {"method": label, "failed": next(o for o in outcomes if not isinstance(o, Run)),
                "completed": len(runs)}
    scores = [_score(run) for run in runs]
    # Seeds are paired: the same split, the same initial weights, the same dropout as vanilla's.
    differences = [score - _score(plain) for score, plain in zip(scores, vanilla)]
    reached = [cost
               for cost in (_cost_of(run, target) for run, target in zip(runs, targets)) if cost]
    epochs, seconds, sent = (sum(run.cumulative(name)[-1] if name else run.n_epochs for run in runs)
                             for name in (None, "seconds", "bytes_sent"))
    return {"method": label, "test": statistics.mean(scores), "deviation": _deviation(scores),
            "tests": scores, "best_validation": [100 * run.best()[1] for run in runs],
            "difference": statistics.mean(differences),
            "difference_error": _deviation(differences) / len(runs) ** 0.5,
            "epochs_per_second": statistics.median(run.n_epochs / run.cumulative("seconds")[-1]
                                                   for run in runs),
            "seconds_per_epoch": seconds / epochs, "bytes_per_epoch": sent / epochs,
            "compression": sum(run.cumulative("bytes_uncompressed")[-1] for run in runs) / sent
            if sent else None,
            "hidden_share": statistics.mean(run.fact("hidden_share") or 0.0 for run in runs),
            "reached": len(reached),
            "seconds_to_target": statistics.mean(c["seconds"] for c in reached) if reached
            else None,
            "bytes_to_target": statistics.mean(c["bytes"] for c in reached) if reached else None,
            "epochs_to_target": statistics.mean(c["epochs"] for c in reached) if reached else None}


def _deviation(values: list[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


def _cost_of(run: Run, target: float) -> dict | None:
    """What the run had spent when its test accuracy first reached the target."""
    for epoch, seconds, sent, test in zip(run.column("epoch"), run.cumulative("seconds"),
                                          run.cumulative("bytes_sent"), run.column("test")):
        if test is not None and 100 * test >= target:
            return {"epochs": epoch, "seconds": seconds, "bytes": sent}
    return None


def _markdown(facts: dict, rows: list[dict]) -> str:
    settings = ", ".join(f"{key} {value}" for key, value in facts["settings"].items())
    where, share = facts["machine"], f"{100 * facts['target_share']:.0f} %"
    asleep = (" Ranks outnumber cores: a rank that waits sleeps." if facts["ranks"] > where["cores"]
              else "")
    head = ["method", "test accuracy, %", "to vanilla, points", f"within {LIMIT}", "epochs/s",
            "bytes/epoch", "compression", "epochs to target", "time to target", "bytes to target"]
    return "\n\n".join([
        f"# Methods on {facts['graph']}",
        f"`{facts['command']}`: {facts['ranks']} ranks, {facts['seeds']} seeds; {settings}.",
        f"{where['cpu']}, {where['cores']} cores shared with other work, {where['date']}: "
        "compare times with care, and\n"
        f"within this table only; accuracy and bytes do not depend on the machine.{asleep}",
        "Test accuracy is taken at the best validation accuracy: mean and standard deviation "
        "over seeds. The difference\n"
        "to vanilla is paired by seed (same split, initial weights and dropout), with its "
        "standard error. Bytes are\n"
        "those of halo messages, all ranks; to target: spent until the test accuracy first "
        "reaches\n"
        f"{share} of vanilla's on that seed.",
        markdown_table(head, [_cells(row, facts["seeds"]) for row in rows])]) + "\n"


def _cells(row: dict, n_seeds: int) -> list[str]:
    if "failed" in row:
        return [row["method"], f"failed in {n_seeds - row['completed']} of {n_seeds} runs: "
                               f"{row['failed']}"] + [""] * 8
    some = f" ({row['reached']} of {n_seeds} seeds)" if 0 < row["reached"] < n_seeds else ""
    to_target = [f"{row['epochs_to_target']:.0f}{some}", scales.duration(row["seconds_to_target"]),
                 scales.size(row["bytes_to_target"])] if row["reached"] else ["not reached", "–",
                                                                              "–"]
    return [
        row["method"], f"{row['test']:.2f} ± {row['deviation']:.2f}", "–" if row["method"]
        == "vanilla" else f"{row['difference']:+.2f} ± {row['difference_error']:.2f}",
        "–" if row["method"] == "vanilla" else "yes" if row["difference"] >= -LIMIT else "**no**",
        f"{row['epochs_per_second']:.1f}", scales.size(row["bytes_per_epoch"]),
        f"{row['compression']:.1f}×" if row["compression"] else "–", *to_target]


def _plots(path: str, facts: dict, by_label: dict[str, list]):
    """Mean test accuracy over seeds against time and against bytes."""
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    figure, (by_time, by_bytes) = plt.subplots(1, 2, figsize=(13, 5), sharey=True,
                                               layout="constrained")
    tops = []
    for number, (label, outcomes) in enumerate(by_label.items()):
        runs = [run for run in outcomes if isinstance(run, Run)]
        if not runs:
            continue
        seconds, sent, tests = _mean_curve(runs)
        look = line_look(number)
        by_time.plot(seconds, tests, label=label, **look)
        by_bytes.plot(sent, tests, label=label, **look)
        tops.append(max(tests))
    by_time.set(xlabel="training time (s)", ylabel="test accuracy (%), mean over seeds",
                title="Accuracy against time", ylim=(max(tops) - 15, max(tops) + 1))
    by_bytes.set(xlabel="bytes sent, all ranks", xscale="log", title="Accuracy against bytes")
    by_bytes.xaxis.set_major_formatter(lambda value, _: scales.size(value))
    for panel in (by_time, by_bytes):
        panel.axhline(statistics.mean(facts["targets"]), color="0.6", linewidth=0.8, linestyle=":")
        panel.grid(axis="y", color="0.92")
        panel.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"{facts['graph']}, {facts['ranks']} ranks, {facts['seeds']} seeds")
    figure.legend(*by_time.get_legend_handles_labels(), loc="outside lower center", ncols=5,
                  frameon=False)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _mean_curve(runs: list[Run]) -> tuple[list[float], list[float], list[float]]:
    """(seconds, bytes, test accuracy) at every evaluation, each a mean over the runs."""
    at = [k for k, test in enumerate(runs[0].column("test")) if test is not None]
    seconds, sent = ([run.cumulative(name) for run in runs] for name in ("seconds", "bytes_sent"))
    return ([statistics.mean(s[k] for s in seconds) for k in at],
            [statistics.mean(b[k] for b in sent) for k in at],
            [100 * statistics.mean(run.column("test")[k] for run in runs) for k in at])
