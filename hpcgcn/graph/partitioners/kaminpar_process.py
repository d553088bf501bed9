"""A process that runs KaMinPar once: started with a graph file, parts, seed and a file for the
answer.

Run again in one process it may give other parts for the same seed, or crash (3.7.3).
"""

from __future__ import annotations

import sys

import numpy as np

UNEVEN = 0.03


def main():
    """Divide the graph of a file in ParHIP's binary format."""
    import kaminpar

    graph_path, n_parts, seed, answer_path = sys.argv[1:]
    kaminpar.reseed(int(seed))
    graph = kaminpar.load_graph(graph_path, kaminpar.GraphFileFormat.PARHIP, compress=True)
    solver = kaminpar.KaMinPar(1, kaminpar.terapart_context())
    parts = solver.compute_partition(graph, int(n_parts), UNEVEN)
    np.save(answer_path, np.array(parts, np.int32))


if __name__ == "__main__":
    main()
