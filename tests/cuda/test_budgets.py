"""What an epoch and a kernel may cost: launches, sectors per request, wavefronts per request.

Counted, not timed: launches by the backend, memory traffic by the PTX machine. A number here goes
down when a kernel gets better; it must not go up unseen.
"""

import importlib

import numpy as np
import pytest
from small_graphs import make_trainer, small_graph

from hpcgcn.backend.cuda import CudaBackend, DeviceSum

WIDTH, ROWS = 128, 64
# Kernels of an epoch of training: 3 layers, or 8 of the deep models; whatever the number of rows.
LAUNCHES = {"gcn": 25, "sage": 32, "gat": 37, "gcnii": 115, "resgcn": 120}


@pytest.mark.parametrize("model", LAUNCHES)
@pytest.mark.parametrize("n_nodes", [50, 3000])
def test_launches_of_an_epoch(stand_in, monkeypatch, model, n_nodes):
    names = []
    monkeypatch.setattr(CudaBackend, "launch",
                        lambda self, name, *_, **__: names.append(name))
    monkeypatch.setattr(CudaBackend, "_loss", lambda *_: 1.0)
    deep = model in ("gcnii", "resgcn")
    trainer = make_trainer(small_graph(n_nodes, 4 * n_nodes), backend="cuda", model=model,
                           layers=8 if deep else 3, hidden=16)
    names.clear()
    trainer.run_epoch()
    trainer.close()
    assert len(names) <= LAUNCHES[model], sorted(names)


@pytest.mark.parametrize("model", LAUNCHES)
def test_the_loss_is_read_after_the_backward_pass(stand_in, monkeypatch, model):
    """Until then the host runs ahead: nothing waits for the device."""
    events, launch = [], CudaBackend.launch
    monkeypatch.setattr(CudaBackend, "launch", lambda self, name, *rest, **more: (
        events.append(name), launch(self, name, *rest, **more)))
    monkeypatch.setattr(DeviceSum, "__float__", lambda self: events.append("loss is read") or 1.0)
    trainer = make_trainer(small_graph(), backend="cuda", model=model, layers=3, hidden=8)
    events.clear()
    trainer.run_epoch()
    trainer.close()
    assert events.count("loss is read") == 1
    assert {name.partition("<")[0] for name in events[events.index("loss is read") + 1:]} == {
        "adam"}


@pytest.fixture
def count(ptx_machine):
    """Run a call on the PTX machine; the traffic of the kernel whose name has a word in it."""
    ptx_machine(80).modules._ptx()
    machine = importlib.import_module("hpcgcn_ptx_machine.machine")
    traffic = importlib.import_module("hpcgcn_ptx_machine.traffic")

    def run(backend, word, call):
        call()                                   # what it allocates and compiles
        backend.synchronize()
        counter = traffic.Counter()
        with machine.counting(counter):
            call()
            backend.synchronize()
        found, = (t for name, t in counter.kernels.items() if word in name)
        return found
    return run


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def operations(b):
    """Hot operations on aligned rows of 128 columns: what is called, by the kernel's name."""
    put = b.from_host
    x, y, out = (put(numbers(ROWS, WIDTH, seed=k)) for k in range(3))
    index = put(np.random.default_rng(0).permutation(ROWS).astype(np.int32))
    ids = put(np.arange(ROWS, dtype=np.int64))
    indptr = np.arange(0, 8 * ROWS + 1, 8, dtype=np.int64)
    indices = np.random.default_rng(1).integers(0, ROWS, 8 * ROWS).astype(np.int32)
    short = b.csr(indptr, indices, ROWS)
    long = b.csr(indptr[::16] * 1, indices, ROWS)           # 128 entries per row
    vector = [put(numbers(WIDTH, seed=k)) for k in range(6)]
    xhat, rstd = put(numbers(ROWS, WIDTH)), put(np.abs(numbers(ROWS)))
    coded = b.zeros((ROWS * (8 + WIDTH),), np.uint8)
    return {
        "spmm_short": lambda: b.spmm(short, x, out),
        "spmm_long": lambda: b.spmm(long, x, out[:len(long.structure.host_indptr) - 1]),
        "gather_rows": lambda: b.gather_rows(x, index, out),
        "scatter_add_rows": lambda: b.scatter_add_rows(x, index, out),
        "axpby": lambda: b.axpby(2.0, x, 1.0, y, out),
        "epilogue_forward": lambda: b.epilogue_forward(x, out, *vector[:3], xhat, rstd, (1, 2),
                                                       9000, ids),
        "epilogue_backward": lambda: b.epilogue_backward(x, y, out, 1.0, vector[0], xhat, rstd,
                                                         *vector[3:]),
        "dropout": lambda: b.dropout(x, out, (1, 2), 9000, ids),
        "quantise": lambda: b.quantise(x, None, ids, 8, (1, 2), True, coded),
        "dequantise": lambda: b.dequantise(coded, 8, True, out),
        "column_sums": lambda: b.column_sum_add(x, vector[5]),
    }


# Bytes used per byte of the sectors asked for, of loads (more than 1: lanes share a sector) and of
# stores, at least; wavefronts per request of shared memory, at most. A thread of a row kernel with
# eight columns uses half of a sector per request; the second half comes with the next request, out
# of the cache.
BUDGETS = {"spmm_short": (1.29, 1.0, 0), "spmm_long": (1.01, 1.0, 0),
           "gather_rows": (1.17, 1.0, 0), "scatter_add_rows": (1.09, 1.0, 0),
           "axpby": (1.0, 1.0, 0), "column_sums": (1.0, 1.0, 1),
           "epilogue_forward": (0.74, 0.49, 0), "epilogue_backward": (0.57, 0.14, 6.3),
           "dropout": (0.61, 0.5, 0), "quantise": (0.55, 0.44, 0), "dequantise": (0.88, 0.5, 0)}
GENERIC = {"epilogue_backward"}                  # its sums are in shared or in global memory


@pytest.mark.parametrize("name", BUDGETS)
def test_traffic_of_a_hot_kernel(ptx_machine, count, name):
    backend = CudaBackend()
    found = count(backend, name, operations(backend)[name])
    loads, stores, wavefronts = BUDGETS[name]
    assert found.load_bytes / (32 * found.load_sectors) >= loads
    assert found.store_bytes / (32 * found.store_sectors) >= stores
    assert found.shared_wavefronts <= wavefronts * found.shared_requests
    assert bool(found.generic_requests) == (name in GENERIC)


def test_the_counts_of_a_known_access(ptx_machine, count):
    """64 rows of 512 bytes, each read and written by one warp in one request of 16 sectors."""
    backend = CudaBackend()
    found = count(backend, "axpby", operations(backend)["axpby"])
    assert (found.store_requests, found.store_sectors) == (64, 64 * 16)
    assert found.load_requests == 2 * 64 and found.load_bytes == 2 * 64 * 512
