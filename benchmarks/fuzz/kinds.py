"""The kinds of input: how sound ones are made, which of their files are damaged, what is done with
them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

from fuzz import sound_files, sound_tables, uses
from fuzz.change_files import change_case, flip_one_bit


@dataclass(frozen=True)
class Kind:
    """make(folder) writes sound varieties; `files` are patterns of what may be damaged;
    use(folder, changes) is what a user does."""

    make: Callable[[str], None]
    files: tuple[str, ...]
    use: Callable[[str, str], None]
    shared: str = ""  # kinds that name the same sound files make them once
    change: Callable[..., str] = change_case  # (rng, folder, files) -> what was done
    rounds: int = 1  # it takes part in one of so many rounds: 3 where a case takes long


_TABLES = ("data/**/*",)
KINDS = {
    "graph": Kind(sound_files.graphs, ("g.h5",), uses.graph),
    "partition": Kind(sound_files.partitions, ("g.h5",), uses.partition),
    "checkpoint": Kind(sound_files.runs, ("run/checkpoints/*/*.h5",), uses.checkpoint, "runs",
                       rounds=3),
    "checkpoint-bit": Kind(sound_files.runs, ("run/checkpoints/*/*.h5",), uses.checkpoint, "runs",
                           flip_one_bit, rounds=3),
    "run": Kind(sound_files.runs, ("run/*.*", "run/*.*", "run/checkpoints/*/*"), uses.run_folder,
                "runs", rounds=3),
    "predictions": Kind(sound_files.predictions, ("p.h5",), uses.predictions),
    "toml": Kind(sound_files.settings, ("run.toml",), uses.settings),
    "csv": Kind(sound_files.csv, _TABLES, uses.csv),
    "features": Kind(sound_tables.features, ("data/features.*", "data/features.*", "data/edges.*"),
                     uses.beside),
    "labels": Kind(sound_tables.labels, ("data/labels.*", "data/labels.*", "data/edges.*"),
                   uses.beside),
    "parquet": Kind(sound_tables.parquet, ("data/*",), uses.beside, rounds=3),
    "mtx": Kind(sound_files.mtx, _TABLES, uses.imported("mtx", "@data")),
    "npz": Kind(sound_files.npz, ("data.npz",), uses.imported("npz", "@data.npz")),
    "planetoid": Kind(sound_files.written_as("planetoid", "", "dense", "sparse"), _TABLES,
                      uses.imported("planetoid", "@data")),
    "ogb": Kind(sound_files.ogb, _TABLES, uses.imported("ogb", "@data")),
    "graphsaint": Kind(sound_files.written_as("graphsaint", "", "dense", "multilabel"), _TABLES,
                       uses.imported("graphsaint", "@data")),
    "dgl-reddit": Kind(sound_files.written_as("dgl-reddit", "", "dense", "named"), _TABLES,
                       uses.imported("dgl-reddit", "@data")),
    "dgl": Kind(sound_files.dgl, ("data.dgl", "arrays.npz"), uses.dgl),
    "pyg": Kind(sound_files.pyg, ("data.pt",), uses.imported("pyg", "@data.pt")),
    "safetensors": Kind(sound_files.safetensors, ("w.safetensors",), uses.weights("w.safetensors")),
    "pt": Kind(sound_files.torch_weights, ("w.pt",), uses.weights("w.pt")),
}


def cases(chosen: list[str], n: int) -> list[tuple[str, int]]:
    """(kind, number) of n cases, in rounds over these kinds."""
    in_turn = ((name, turn // KINDS[name].rounds) for turn in itertools.count() for name in chosen
               if turn % KINDS[name].rounds == 0)
    return list(itertools.islice(in_turn, n))
