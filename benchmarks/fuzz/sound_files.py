"""Sound inputs of every kind, small enough that thousands of cases a minute can be made from them.

Each maker gets a folder and writes one subfolder for each variety; a case begins as a copy of one
of them.
"""

from __future__ import annotations

import os
import shutil
import tempfile

import numpy as np

from hpcgcn.cli import main
from hpcgcn.config import Config, make_config, to_toml
from hpcgcn.formats.table import write_as
from hpcgcn.graph.csr import csr_from_edges
from hpcgcn.graph.data import TEST, TRAIN, VAL, Graph, SparseRows
from hpcgcn.graph.divide import divide
from hpcgcn.graph.store import write_graph
from hpcgcn.train import checkpoint

N_NODES, N_FEATURES, N_CLASSES = 30, 5, 3
TRAIN_FLAGS = ["--epochs", "2", "--hidden", "4", "--layers", "2", "--threads", "1", "--quiet",
               "--stall-timeout", "0", "--eval-every", "1"]


RESUMED_EPOCHS = 3
RESUME_FLAGS = [*TRAIN_FLAGS, "--epochs", str(RESUMED_EPOCHS), "--name", "run", "--resume", "auto"]


def small_graph(seed: int = 0, directed: bool = False, **changes) -> Graph:
    """A random graph whose last nodes are for the test, as Planetoid files want it."""
    rng = np.random.default_rng(seed)
    ends = rng.integers(0, N_NODES, (2, 70))
    ends = ends[:, ends[0] != ends[1]]
    indptr, indices = csr_from_edges(N_NODES, *ends, undirected=not directed)
    split = np.full((1, N_NODES), VAL, np.uint8)
    split[:, :10], split[:, 22:] = TRAIN, TEST
    contents = dict(features=rng.standard_normal((N_NODES, N_FEATURES)).astype(np.float32),
                    labels=rng.integers(0, N_CLASSES, N_NODES).astype(np.int32), split=split,
                    n_classes=N_CLASSES)
    contents["labels"][:N_CLASSES] = range(N_CLASSES)
    return Graph(indptr, indices, **{**contents, **changes}, directed=directed)


def _weighted() -> Graph:
    """A graph with edge weights, the same in both directions."""
    graph = small_graph(8)
    rows = np.repeat(np.arange(N_NODES), np.diff(graph.indptr))
    graph.edge_weights = (1 + (rows + graph.indices) % 7 / 8).astype(np.float32)
    return graph


def _sparse(seed: int = 0, values: bool = True) -> SparseRows:
    rng = np.random.default_rng(seed)
    rows, columns = np.nonzero(rng.random((N_NODES, N_FEATURES)) < 0.15)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=N_NODES))]).astype(np.int64)
    return SparseRows(indptr, columns.astype(np.int32),
                      rng.random(len(rows)).astype(np.float32) + 1 if values else None, N_FEATURES)


def varieties() -> dict[str, Graph]:
    """A graph for each form that contents can take."""
    rng = np.random.default_rng(5)
    names = np.array([f"node-{k}" for k in range(N_NODES)])
    return {
        "dense": small_graph(),
        "sparse": small_graph(1, features=_sparse()),
        "sparse-ones": small_graph(2, features=_sparse(2, False)),
        "directed": small_graph(3, directed=True),
        "multilabel": small_graph(4,
                                  labels=rng.integers(0, 2, (N_NODES, N_CLASSES)).astype(np.uint8)),
        "splits": small_graph(5, split=rng.integers(1, 4, (3, N_NODES)).astype(np.uint8)),
        "named": small_graph(6, node_names=names, source="somewhere",
                             extra={"class_names": ["a", "b", "c"], "id_column": "id"}),
        "weighted": _weighted(),
        "fp16": small_graph(7,
                            features=rng.standard_normal((N_NODES, N_FEATURES)).astype(np.float16)),
    }


def made(folder: str, *names: str) -> str:
    """A path within the folder, whose own folder is made."""
    path = os.path.join(folder, *names)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    return path


def graphs(folder: str):
    for name, graph in varieties().items():
        write_graph(made(folder, name, "g.h5"), graph, command="hpcgcn generate",
                    settings={"seed": 0})


def partitions(folder: str):
    for name, graph in varieties().items():
        for n_parts in (1, 2):
            if n_parts == 1 or name in ("dense", "sparse", "named"):
                divide(graph, made(folder, f"{name}-{n_parts}", "g.h5"), n_parts,
                       method="block" if n_parts == 1 else "metis")


def _command(*arguments: str):
    if main(list(arguments)):
        raise RuntimeError(f"hpcgcn {' '.join(arguments)} was refused: the sound files cannot be "
                           "made")


# Runs whose checkpoints are damaged, by variety, and the flags that make them and go on with them.
RUNS = {
    "gcn": ["--model", "gcn"],
    "sage": ["--model", "sage", "--lr-schedule", "cosine"],
    "gcnii": ["--model", "gcnii"],
    "gat": ["--model", "gat", "--heads", "2", "--output-heads", "2"],
    "gin": ["--model", "gin", "--norm", "batch", "--optimiser", "adamw"],
    "patient": ["--model", "gcn", "--norm", "batch", "--patience", "5", "--metric", "macro-f1",
                "--class-weights", "balanced", "--optimiser", "sgd", "--tracker", "tensorboard"],
}


def _run(folder: str, *flags: str):
    """A graph and a finished run of two checkpoints."""
    graph = made(folder, "g.h5")
    write_graph(graph, small_graph())
    _command("train", graph, *TRAIN_FLAGS, "--checkpoint-every", "1", "--keep", "2", "--output",
             folder, "--name", "run", *flags)


def runs(folder: str):
    for name, flags in RUNS.items():
        place = os.path.join(folder, name)
        _run(place, *flags)
        # What each checkpoint predicts: no damage may lead to anything else.
        for number, saved in enumerate(
            ("run", *(os.path.join("run", "checkpoints", f"epoch-{k:06d}") for k in (1, 2)))
        ):
            _command("predict", os.path.join(place, saved), os.path.join(place, "g.h5"), "-o",
                     os.path.join(place, f"saved-{number}.h5"), "--what", "logits")
        # And where training leads from either of them, or from the start.
        for kept in ((1, 2), (1,), ()):
            np.save(os.path.join(place, f"resumed-{len(kept)}.npy"),
                    _resumed(place, flags, kept))


def _resumed(place: str, flags: list[str], kept: tuple[int, ...]) -> np.ndarray:
    """The parameters of a run that goes on from the newest of these checkpoints."""
    with tempfile.TemporaryDirectory() as copy:
        run = os.path.join(copy, "run")
        shutil.copytree(os.path.join(place, "run"), run)
        for epochs in {1, 2} - set(kept):
            shutil.rmtree(os.path.join(run, "checkpoints", f"epoch-{epochs:06d}"))
        _command("train", os.path.join(place, "g.h5"), *RESUME_FLAGS, *flags, "--output", copy)
        return parameters_after(run)


def parameters_after(run: str) -> np.ndarray:
    """The parameters of a resumed run, when its last epoch is done."""
    path = os.path.join(run, "checkpoints", f"epoch-{RESUMED_EPOCHS:06d}")
    return checkpoint.load(path).parameters


def predictions(folder: str):
    for name in ("dense", "multilabel", "named"):
        place = os.path.join(folder, f"source-{name}")
        graph = made(place, "g.h5")
        write_graph(graph, varieties()[name])
        _command("train", graph, *TRAIN_FLAGS, "--output", place, "--name", "run")
        for what in ("classes", "logits", "embeddings"):
            _command("predict", os.path.join(place, "run"), graph, "-o",
                     made(folder, f"{name}-{what}", "p.h5"), "--what", what)
        shutil.rmtree(place)


def settings(folder: str):
    texts = {
        "defaults": to_toml(Config()),
        "commented": to_toml(Config(), comments=True),
        "short": 'model = "gcn"\nlayers = 2\nhidden = 8\nlr = 0.01\ndropout = 0.5\ninductive = '
                 'true\nname = "x"\n',
        "stale": to_toml(make_config({"method": "pipegcn-gf"})),
        "codec": to_toml(make_config({"method": "sylvie-a"})),
        "features": 'method = "overlap"\nparallel = "features"\nfeature_blocks = 2\nbyte_budget = '
                    '"0"\n',
    }
    for name, text in texts.items():
        with open(made(folder, name, "run.toml"), "w") as file:
            file.write(text)
        write_graph(made(folder, name, "g.h5"), small_graph())


def written_as(format_name: str, ending: str, *kinds: str):
    """A maker of files in a format that `export` writes."""

    def make(folder: str):
        for name in kinds or ("dense", "sparse", "named"):
            write_as(format_name, made(folder, name, "data" + ending), varieties()[name])

    return make


def npz(folder: str):
    for format_name, kinds in (("npz", ("dense", "sparse", "multilabel", "splits", "named")),
                               ("npz-heterophilous", ("dense", "splits")),
                               ("npz-gnn-benchmark", ("dense", "sparse", "directed"))):
        for name in kinds:
            write_as(format_name, made(folder, f"{format_name}-{name}", "data.npz"),
                     varieties()[name])


def csv(folder: str):
    for name in ("dense", "named", "multilabel", "splits"):
        write_as("csv", made(folder, f"packed-{name}", "data"), varieties()[name])
        plain = os.path.join(folder, f"plain-{name}", "data")
        os.makedirs(plain)
        for part in ("edges.csv", "nodes.csv"):
            _unpack(os.path.join(folder, f"packed-{name}", "data", part + ".gz"),
                    os.path.join(plain, part))
    edges = "".join(f"{k % 29} {k % 7 + 29 - 6}\n" for k in range(0, 40))
    with open(made(folder, "edges-only", "data", "edges.txt"), "w") as file:
        file.write("# comment\n" + "".join(dict.fromkeys(edges.splitlines(True))))
    nodes = "".join(
        f"{k},{'abc'[k % 3]},{'true' if k % 2 else 'false'},{k / 7:.4g}\n" for k in range(N_NODES)
    )
    with open(made(folder, "words", "data", "nodes.csv"), "w") as file:
        file.write("id,label,flag,x\n" + nodes)
    with open(made(folder, "words", "data", "edges.csv"), "w") as file:
        file.write(
            "source,target\n" + "".join(f"{k},{(7 * k + 1) % N_NODES}\n" for k in range(N_NODES))
        )


def _unpack(path: str, target: str):
    import gzip

    with gzip.open(path) as packed, open(target, "wb") as file:
        file.write(packed.read())


def mtx(folder: str):
    for name in ("dense", "multilabel"):
        write_as("mtx", made(folder, name, "data"), varieties()[name])
    with open(made(folder, "weighted", "data", "edges.mtx"), "w") as file:
        file.write("%%MatrixMarket matrix coordinate real symmetric\n% comment\n4 4 3\n2 1 0.5\n3 "
                   "1 1.0\n4 3 2e0\n")


def ogb(folder: str):
    write_as("ogb", made(folder, "packed", "data"), varieties()["dense"])
    write_as("ogb", made(folder, "multilabel", "data"), varieties()["multilabel"])
    shutil.copytree(os.path.join(folder, "packed"), os.path.join(folder, "plain"))
    for at, _, names in os.walk(os.path.join(folder, "plain")):
        for name in names:
            _unpack(os.path.join(at, name), os.path.join(at, name.removesuffix(".gz")))
            os.unlink(os.path.join(at, name))
    graph = varieties()["dense"]
    rows = np.repeat(np.arange(N_NODES), np.diff(graph.indptr))
    np.savez(made(folder, "arrays", "data", "data.npz"), edge_index=np.stack([graph.indices, rows]),
             node_feat=graph.features)
    np.savez(made(folder, "arrays", "data", "node-label.npz"), node_label=graph.labels[:, None])


def dgl(folder: str):
    """What the process that loads DGL's files hands over; DGL itself need not be installed."""
    graph = varieties()["dense"]
    rows = np.repeat(np.arange(N_NODES), np.diff(graph.indptr))
    masks = {
        f"{name}_mask": graph.split[0] == code
        for name, code in (("train", TRAIN), ("val", VAL), ("test", TEST))
    }
    np.savez(made(folder, "arrays", "arrays.npz"),
             edges=np.stack([graph.indices, rows]).astype(np.int64), n_nodes=np.int64(N_NODES),
             edge_data=np.array(["weight"]), x=graph.features, y=graph.labels, **masks)
    with open(made(folder, "file", "data.dgl"), "wb") as file:
        file.write(b"\x34\x12\xdd\x90\x86\x2c\xdd\xa2" + bytes(range(256)) * 8)


def pyg(folder: str):
    import torch

    from hpcgcn.formats.torch_objects import tensors_of

    for name in ("dense", "multilabel", "splits"):
        write_as("pyg", made(folder, name, "data.pt"), varieties()[name])
    graph = varieties()["dense"]
    edges = torch.from_numpy(
        np.stack([graph.indices, np.repeat(np.arange(N_NODES), np.diff(graph.indptr))]).astype(
            np.int64
        )
    )
    torch.save({"edge_index": edges, "num_nodes": N_NODES, **tensors_of(graph)},
               made(folder, "dictionary", "data.pt"))


def safetensors(folder: str):
    place = os.path.join(folder, "source")
    every = ("pyg", "dgl", "hpcgcn")
    for model, flags, frameworks in (
        ("gcn", [], every), ("sage", [], every), ("gcnii", [], every),
        ("gat", ["--heads", "2"], ("pyg", "hpcgcn")),
        ("gin", ["--norm", "batch"], ("hpcgcn",)), ("appnp", [], ("hpcgcn",)),
    ):
        _run(place, "--model", model, *flags)
        for framework in frameworks:
            path = made(folder, f"{model}-{framework}", "w.safetensors")
            _command("weights", "export", os.path.join(place, "run"), "-o", path, "--to", framework)
            shutil.copy(os.path.join(place, "g.h5"), os.path.dirname(path))
        shutil.rmtree(place)


def torch_weights(folder: str):
    import torch

    generator = torch.Generator().manual_seed(0)

    def tensor(*shape):
        return torch.randn(*shape, generator=generator)

    gcn = {"convs.0.lin.weight": tensor(4, N_FEATURES), "convs.0.bias": tensor(4),
           "convs.1.lin.weight": tensor(N_CLASSES, 4), "convs.1.bias": tensor(N_CLASSES)}
    sage = {"convs.0.lin_l.weight": tensor(4, N_FEATURES), "convs.0.lin_l.bias": tensor(4),
            "convs.0.lin_r.weight": tensor(4, N_FEATURES),
            "convs.1.lin_l.weight": tensor(N_CLASSES, 4), "convs.1.lin_l.bias": tensor(N_CLASSES),
            "convs.1.lin_r.weight": tensor(N_CLASSES, 4)}
    gat = {"convs.0.lin.weight": tensor(4, N_FEATURES), "convs.0.bias": tensor(4),
           "convs.0.att_src": tensor(1, 2, 2), "convs.0.att_dst": tensor(1, 2, 2),
           "convs.1.lin.weight": tensor(N_CLASSES, 4), "convs.1.bias": tensor(N_CLASSES),
           "convs.1.att_src": tensor(1, 1, N_CLASSES), "convs.1.att_dst": tensor(1, 1, N_CLASSES)}
    for name, value in {
        "gcn": gcn,
        "gat": gat,
        "sage": {"state_dict": sage, "epoch": 3},
        "half": {key: value.to(torch.bfloat16) for key, value in gcn.items()},
    }.items():
        torch.save(value, made(folder, name, "w.pt"))
        write_graph(made(folder, name, "g.h5"), small_graph())
    torch.save(gcn, made(folder, "legacy", "w.pt"), _use_new_zipfile_serialization=False)
    write_graph(made(folder, "legacy", "g.h5"), small_graph())
