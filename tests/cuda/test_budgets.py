"""What an epoch and a kernel may cost: launches, sectors per request, wavefronts per request.

Counted, not timed: launches by the backend, memory traffic by the PTX machine. A number here goes
down when a kernel gets better; it must not go up unseen.
"""

import sys
from pathlib import Path

import pytest
from small_graphs import make_trainer, small_graph

from hpcgcn.backend.cuda import CudaBackend
from hpcgcn.backend.cuda_arguments import DeviceSum

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "cuda"))
import roofline

# Kernels of an epoch of training: 3 layers, or 8 of the deep models; whatever the number of rows.
LAUNCHES = {"gcn": 25, "sage": 32, "gat": 37, "gcnii": 115, "resgcn": 120, "gin": 26, "appnp": 27}


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


# Bytes used per byte of the sectors asked for, of loads (more than 1: lanes share a sector) and of
# stores, at least; wavefronts per request of shared memory, at most.
BUDGETS = {"spmm_short": (1.29, 1.0, 0), "spmm_long": (1.01, 1.0, 0),
           "gather_rows": (1.17, 1.0, 0), "scatter_add_rows": (1.09, 1.0, 0),
           "copy_columns": (1.0, 1.0, 0), "axpby": (1.0, 1.0, 0), "column_sums": (1.0, 1.0, 1),
           "epilogue_forward": (1.6, 0.99, 0), "epilogue_backward": (1.16, 1.0, 2),
           "dropout": (1.2, 1.0, 0), "quantise": (1.09, 0.8, 0), "dequantise": (0.9, 1.0, 0)}


@pytest.mark.parametrize("name", BUDGETS)
def test_traffic_of_a_hot_kernel(ptx_machine, name):
    ptx_machine(80)
    backend = CudaBackend()
    found = roofline.count(backend, name, roofline.operations(backend)[name])
    loads, stores, wavefronts = BUDGETS[name]
    assert found.load_bytes / (32 * found.load_sectors) >= loads
    assert found.store_bytes / (32 * found.store_sectors) >= stores
    assert found.shared_wavefronts <= wavefronts * found.shared_requests
    assert not found.generic_requests


def test_the_counts_of_a_known_access(ptx_machine):
    """64 rows of 512 bytes, each read and written by one warp in one request of 16 sectors."""
    ptx_machine(80)
    backend = CudaBackend()
    found = roofline.count(backend, "axpby", roofline.operations(backend)["axpby"])
    assert (found.store_requests, found.store_sectors) == (64, 64 * 16)
    assert found.load_requests == 2 * 64 and found.load_bytes == 2 * 64 * 512
    assert (len(found.loaded), len(found.stored)) == (2 * 64 * 16, 64 * 16)


@pytest.mark.parametrize("name", ["gather_rows", "scatter_add_rows"])
def test_rows_of_41_columns_are_moved_without_reading_sectors_again(ptx_machine, name):
    """They start anywhere, so that a sector may belong to two requests; not to four."""
    ptx_machine(80)
    backend = CudaBackend()
    found = roofline.count(backend, name, roofline.operations(backend, 41)[name])
    asked = found.load_sectors + found.store_sectors
    assert asked <= 1.5 * (len(found.loaded) + len(found.stored))


def test_rows_of_41_columns_are_gathered_as_vectors(ptx_machine):
    """20 requests per row of 8 entries at 128 columns; 40 at 41 if columns came one by one."""
    ptx_machine(80)
    backend = CudaBackend()
    call = roofline.operations(backend, 41)["spmm_short"]
    found = [roofline.count(backend, word, call) for word in ("spmm_short", "copy_columns")]
    assert sum(one.load_requests + one.store_requests for one in found) <= 16 * roofline.ROWS
