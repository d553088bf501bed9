"""Loads a file of dgl.save_graphs and saves its arrays, in a process of its own: a damaged file can
make DGL abort.

    python -m hpcgcn.formats.dgl_loader FILE ARRAYS.npz
"""

from __future__ import annotations

import sys

import numpy as np

_NAMES = {"x": ("feat", "feature", "features", "x"), "y": ("label", "labels", "y"),
          "train_mask": ("train_mask",), "val_mask": ("val_mask",), "test_mask": ("test_mask",)}


_WEIGHTS = ("w", "weight", "edge_weight")


def main(path: str, output: str) -> int:
    """0 if the arrays were saved; 1 and the reason as one line of standard output if not."""
    import dgl
    try:
        graph = dgl.load_graphs(path, [0])[0][0]
    except Exception as error:  # noqa: BLE001 - DGL raises its own errors for damaged files
        print(f"cannot be read ({_reason(error)}); expected a file of dgl.save_graphs")
        return 1
    if not graph.is_homogeneous:
        print("holds a graph of several node or edge types; expected a homogeneous one")
        return 1
    sources, targets = graph.edges()
    arrays = {kind: graph.ndata[name].numpy() for kind, names in _NAMES.items()
             for name in names[::-1] if name in graph.ndata}
    # Names with an underscore before them are DGL's own: edge numbers of a subgraph, say.
    weight = next((name for name in _WEIGHTS if name in graph.edata
                   and graph.edata[name].numel() == len(sources)), None)
    if weight is not None:
        arrays["weight"] = graph.edata[weight].numpy().reshape(-1)
    edge_data = np.array([name for name in graph.edata
                          if not name.startswith("_") and name != weight], str)
    np.savez(output, edges=np.stack([sources.numpy(), targets.numpy()]),
             n_nodes=np.int64(graph.num_nodes()), edge_data=edge_data, **arrays)
    return 0


def _reason(error: Exception) -> str:
    """The last line of DGL's words that is not of its stack trace."""
    lines = [line.strip() for line in str(error).splitlines()
             if line.strip() and "[bt]" not in line and "Stack trace" not in line]
    return lines[-1][:200] if lines else type(error).__name__


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
