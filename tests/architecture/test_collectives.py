"""What grows with the graph passes through mpi/large.py, which sends it in pieces: an MPI call, and
a pickled object, end at 2 GiB."""

import ast
from pathlib import Path

import hpcgcn

ROOT = Path(hpcgcn.__file__).parent
CALLS = {"gather", "allgather", "bcast", "scatter", "alltoall", "send", "recv", "sendrecv",
         "Gather", "Gatherv", "Allgather", "Allgatherv", "Bcast", "Scatter", "Scatterv", "Alltoall",
         "Alltoallv", "Send", "Recv", "Sendrecv", "isend", "irecv", "reduce"}
COMMUNICATORS = ("comm", "node", "leaders", "stages", "world")
# Where a communicator is called directly, how often, and why it stays small.
SMALL = {
    "cli/partition.py": (1, "a number per rank"),
    "backend/cuda_aware.py": (2, "a truth value or a message per rank"),
    "backend/cuda_nccl.py": (1, "an id"),
    "backend/cuda_device.py": (1, "a device per rank"),
    "mpi/halo.py": (1, "a count per pair of ranks"),
    "mpi/large.py": (7, "pieces, sizes and shapes"),
    "mpi/ranks.py": (2, "a count per pair of ranks, a number per rank"),
    "mpi/runtime.py": (3, "a host name or a number per rank"),
    "mpi/watchdog.py": (1, "a host name per rank"),
    "mpi/world.py": (2, "a message or a truth value per rank"),
    "parallel/features/whole_graph.py": (4, "some numbers per rank"),
    "parallel/hosts/host_graph.py": (1, "a count per rank"),
    "parallel/hosts/shared.py": (1, "an object without its arrays"),
    "parallel/layers/engine.py": (2, "a cost per layer, a number per stage"),
    "parallel/layers/sharding.py": (2, "parameters: fewer than 2^31, whatever the graph"),
    "parallel/local_graph.py": (1, "a count per rank"),
    "parallel/partition/halo_plans.py": (2, "counts per pair of ranks"),
    "parallel/partition/host_plans.py": (2, "a count per rank"),
    "timeline/clocks.py": (6, "a time per message"),
    "train/accounting.py": (2, "names and costs of exchanges"),
    "train/exchange_errors.py": (1, "names of exchanges, two per hop"),
    "train/callback.py": (2, "a truth value or a message per rank"),
    "train/ranking.py": (3, "counts; scores in blocks of 2 MiB"),
    "train/run.py": (2, "the summary, a truth value per rank"),
    "train/trainer.py": (2, "a host name and a count per rank"),
}


def direct_calls(path: Path) -> list[int]:
    """Lines in which a method of a communicator moves data."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = ast.unparse(node.func.value)
            if node.func.attr in CALLS and owner.rpartition(".")[2] in COMMUNICATORS:
                found.append(node.lineno)
    return found


def test_what_grows_with_the_graph_goes_in_pieces():
    found = {str(path.relative_to(ROOT)): direct_calls(path) for path in ROOT.rglob("*.py")}
    counts = {name: len(lines) for name, lines in found.items() if lines}
    assert counts == {name: count for name, (count, _) in SMALL.items()}, \
        "send arrays with mpi/large.py, or add a line here that says why it stays small"
