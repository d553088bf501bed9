"""Sound files of features and labels beside an edge list, of every kind that `import` reads."""

from __future__ import annotations

import json

import numpy as np
import scipy.io
import scipy.sparse

from fuzz.sound_files import N_CLASSES, N_FEATURES, N_NODES, made


def _edges(folder: str, name: str, named: bool = False):
    word = "node-{}" if named else "{}"
    with open(made(folder, name, "data", "edges.csv"), "w") as file:
        file.write("id_1,id_2\n" + "".join(
            f"{word.format(k)},{word.format((7 * k + 1) % N_NODES)}\n" for k in range(N_NODES)))


def _matrix() -> scipy.sparse.csr_matrix:
    rng = np.random.default_rng(3)
    dense = np.where(rng.random((N_NODES, N_FEATURES)) < 0.4, rng.random((N_NODES, N_FEATURES)), 0)
    return scipy.sparse.csr_matrix(dense.astype(np.float32))


def _rows(matrix: scipy.sparse.csr_matrix) -> list[list[int]]:
    return [matrix[k].indices.tolist() for k in range(N_NODES)]


def features(folder: str):
    matrix = _matrix()
    places = matrix.tocoo()
    triples = [f"{a},{b},{c:.6g}\n" for a, b, c in zip(places.row, places.col, places.data)]
    texts = {
        "lists.json": json.dumps({str(k): row for k, row in enumerate(_rows(matrix))}),
        "words.json": json.dumps({str(k): [f"word{c}" for c in row]
                                  for k, row in enumerate(_rows(matrix))}),
        "triples.csv": "node,feature,value\n" + "".join(triples),
        "dense.csv": "id,a,b,c,d,e\n" + "".join(
            f"{k},{','.join(f'{v:.6g}' for v in row)}\n" for k, row in enumerate(matrix.toarray())),
        "rows.txt": "".join(" ".join(f"{v:.6g}" for v in row) + "\n" for row in matrix.toarray()),
        "lines.svm": "".join(f"{k % N_CLASSES} " + " ".join(
            f"{c + 1}:{matrix[k, c]:.6g}" for c in row) + "\n"
            for k, row in enumerate(_rows(matrix))),
    }
    for name, text in texts.items():
        variety, ending = name.rsplit(".", 1)
        _edges(folder, variety)
        with open(made(folder, variety, "data", f"features.{ending}"), "w") as file:
            file.write(text)
    _edges(folder, "named", named=True)
    with open(made(folder, "named", "data", "features.json"), "w") as file:
        json.dump({f"node-{k}": row for k, row in enumerate(_rows(matrix))}, file)
    for name, kind in (("csr", matrix), ("csc", matrix.tocsc()), ("coo", matrix.tocoo())):
        _edges(folder, name)
        scipy.sparse.save_npz(made(folder, name, "data", "features.npz"), kind)
    for name, saved in (("array", matrix.toarray()), ("whole", (matrix.toarray() > 0).astype(int))):
        _edges(folder, name)
        np.save(made(folder, name, "data", "features.npy"), saved)
    for name, kind in (("coordinate", matrix), ("dense-mtx", matrix.toarray())):
        _edges(folder, name)
        scipy.io.mmwrite(made(folder, name, "data", "features.mtx"), kind)


def labels(folder: str):
    numbers = np.arange(N_NODES) % N_CLASSES
    words = ["abc"[k] for k in numbers]
    texts = {
        "table.csv": "id,name,label\n" + "".join(f"{k},page {k},{w}\n"
                                                 for k, w in enumerate(words)),
        "splits.csv": "id,label,split\n" + "".join(
            f"{k},{w},{('train', 'val', 'test')[k // 3 % 3]}\n" for k, w in enumerate(words)),
        "pairs.txt": "".join(f"{k}\t{n}\n" for k, n in enumerate(numbers)),
        "map.json": json.dumps({str(k): w for k, w in enumerate(words)}),
        "list.json": json.dumps(numbers.tolist()),
        "several.json": json.dumps({str(k): [int(n == c) for c in range(N_CLASSES)]
                                    for k, n in enumerate(numbers)}),
    }
    for name, text in texts.items():
        variety, ending = name.rsplit(".", 1)
        _edges(folder, variety)
        with open(made(folder, variety, "data", f"labels.{ending}"), "w") as file:
            file.write(text)
    for name, saved in (("array", numbers), ("text", np.array(words))):
        _edges(folder, name)
        np.save(made(folder, name, "data", "labels.npy"), saved)
        np.savez(made(folder, name, "data", "features.npz"), x=_matrix().toarray())


def parquet(folder: str):
    import pyarrow
    import pyarrow.parquet

    dense = _matrix().toarray()
    for name, columns in {
        "columns": {"id": list(range(N_NODES)),
                    **{f"x{k}": dense[:, k] for k in range(N_FEATURES)}},
        "lists": {"id": [str(k) for k in range(N_NODES)], "embedding": dense.tolist()},
    }.items():
        _edges(folder, name)
        pyarrow.parquet.write_table(pyarrow.table(columns),
                                    made(folder, name, "data", "features.parquet"))
        pyarrow.parquet.write_table(
            pyarrow.table({"id": list(range(N_NODES)), "label": [k % 3 for k in range(N_NODES)]}),
            made(folder, name, "data", "labels.parquet"))
