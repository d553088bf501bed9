"""Training on the stand-in, on two ranks: the losses of the CPU, for every exchange, in both modes
of communication."""

import csv
import sys
from pathlib import Path

import pytest
from launch import launch

pytestmark = pytest.mark.one_machine

HERE = Path(__file__).resolve().parent
STAND_IN = {"HPCGCN_CUDA_STAND_IN": "1"}
AWARE = {**STAND_IN, "HPCGCN_CUDA_STAND_IN_MPI": "aware"}


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    """A partition of a small graph for two ranks."""
    folder = tmp_path_factory.mktemp("graph")
    launch(1, [sys.executable, "-m", "hpcgcn", "generate", "sbm", "--nodes", "120", "--degree", "8",
               "--features", "12", "--classes", "4", "-o", folder / "graph.h5"]).check()
    launch(1, [sys.executable, "-m", "hpcgcn", "partition", folder / "graph.h5", "-n", "2"]).check()
    return folder / "graph.h5"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode, schedule",
                         [("staged", "lazy"), ("staged", "stream1"), ("cuda-aware", "lazy"),
                          ("nccl", "lazy"), ("nccl", "stream1")])
def test_every_exchange_trains_as_on_the_cpu(stand_in, graph, mode, schedule):
    env = {**(AWARE if mode == "cuda-aware" else STAND_IN),
           "HPCGCN_CUDA_STAND_IN_SCHEDULE": schedule}
    done = launch(2, [sys.executable, HERE / "run_presets.py", graph, mode], env=env,
                  timeout=500).check()
    assert done.stdout.count("largest difference") >= 17, done.stdout
    refused = {line.split()[0] for line in done.stdout.splitlines() if "refused" in line}
    without_nccl = {"gnnpipe", "gat-gnnpipe", "gnnpipe-hybrid", "mixgcn-moa"}
    assert refused == (without_nccl if mode == "nccl" else set()), done.stdout


@pytest.mark.timeout(600)
def test_quantised_and_packed_messages_train_on_ptx(ptx_machine, graph):
    """Kernels of messages in a training, as PTX; the other models are in test_models.py."""
    ptx_machine(80)
    done = launch(2, [sys.executable, HERE / "run_presets.py", graph, "staged", "sylvie-a",
                      "varco"], env={**STAND_IN, "HPCGCN_CUDA_STAND_IN_KERNELS": "ptx-80"},
                  timeout=500).check()
    assert done.stdout.count("largest difference") == 2, done.stdout


@pytest.mark.parametrize("flags, env",
                         [(["--mpi", "staged"], STAND_IN), (["--mpi", "cuda-aware"], AWARE),
                          (["--mpi", "auto"], AWARE), (["--transport", "nccl"], STAND_IN)],
                         ids=["staged", "cuda-aware", "auto", "nccl"])
def test_the_command_trains_as_on_the_cpu(stand_in, graph, tmp_path, flags, env):
    runs = []
    for backend, extra in (("auto", []), ("cuda", flags)):
        launch(2, [sys.executable, "-m", "hpcgcn", "train", graph, "--backend", backend, "--output",
                   tmp_path / backend, "--epochs", "5", "--hidden", "16", "--quiet", *extra],
               env=env, timeout=200).check()
        metrics, = (tmp_path / backend).rglob("metrics.csv")
        runs.append([float(row["loss"]) for row in csv.DictReader(metrics.open())])
    assert len(runs[0]) == 5 and runs[1] == pytest.approx(runs[0], abs=1e-5)
    summary, = (tmp_path / "cuda").rglob("summary.json")
    assert "no GPU is used" in summary.read_text()  # nobody takes this run for one on a GPU


def test_rows_that_are_passed_on_within_hosts(stand_in, graph, tmp_path):
    """Two hosts of two ranks, coded between them and whole within."""
    losses = {}
    for backend in ("auto", "cuda"):
        launch(4, [sys.executable, "-m", "hpcgcn", "train", graph.with_name("graph.h5"),
                   "--backend", backend, "--output", tmp_path / backend, "--epochs", "4",
                   "--hidden", "16", "--quiet", "--method", "sylvie-a", "--stale-error", "inf",
                   "--partition-method", "random", "--once-per-host", "--ranks-per-host", "2"],
               env=STAND_IN, timeout=200).check()
        metrics, = (tmp_path / backend).rglob("metrics.csv")
        rows = list(csv.DictReader(metrics.open()))
        assert int(rows[-1]["bytes_forward_within_host_1"]) > 0
        losses[backend] = [float(row["loss"]) for row in rows]
    assert losses["cuda"][0] == pytest.approx(losses["auto"][0], rel=1e-6)
    assert losses["cuda"] == pytest.approx(losses["auto"], rel=1e-3)     # a code may flip


def test_no_cuda_aware_mpi_is_a_clear_error(stand_in, graph, tmp_path):
    done = launch(2, [sys.executable, "-m", "hpcgcn", "train", graph, "--backend", "cuda", "--mpi",
                      "cuda-aware", "--output", tmp_path], env=STAND_IN)
    assert (done.code == 2 and done.stderr.count("leave the default --mpi staged") == 1
            and "Traceback" not in done.stderr)


def test_two_ranks_on_one_gpu_are_warned(stand_in, graph, tmp_path):
    done = launch(2, [sys.executable, "-m", "hpcgcn", "train", graph, "--backend", "cuda",
                      "--epochs", "1", "--hidden", "8", "--output", tmp_path],
                  env={**STAND_IN, "HPCGCN_CUDA_STAND_IN_DEVICES": "1"}).check()
    assert done.stderr.count("ranks 0, 1") == 1


def test_out_of_memory_ends_all_ranks_with_advice(stand_in, graph, tmp_path):
    done = launch(2, [sys.executable, "-m", "hpcgcn", "train", graph, "--backend", "cuda",
                      "--output", tmp_path],
                  env={**STAND_IN, "HPCGCN_CUDA_STAND_IN_MEMORY": "200000"})
    assert (done.code == 2 and "out of device memory" in done.stderr
            and "Traceback" not in done.stderr)


ONE_RANK_WITHOUT = """
import os
from mpi4py import MPI
from hpcgcn.config import make_config
from hpcgcn.errors import BackendError
from hpcgcn.mpi.runtime import Runtime
from hpcgcn.parallel import make_strategy
from hpcgcn.train.run import open_backend
os.environ["HPCGCN_CUDA_STAND_IN"] = "1" if MPI.COMM_WORLD.rank == 0 else "not here"
with Runtime(MPI.COMM_WORLD) as runtime:
    try:
        open_backend(make_strategy(runtime, make_config({"backend": "cuda"})))
    except BackendError as error:
        print("refused:", error)
"""


def test_ranks_with_other_backends_need_no_device(stand_in, graph, tmp_path):
    done = launch(2, [sys.executable, "-m", "hpcgcn", "train", graph, "--method", "mixgcn-moa",
                      "--sparse-backend", "cuda", "--backend", "native", "--epochs", "1",
                      "--hidden", "8", "--output", tmp_path], env=STAND_IN, timeout=100).check()
    assert done.stderr.count("NO GPU IS USED") == 1


def test_one_rank_without_a_device_stops_all(stand_in):
    done = launch(2, [sys.executable, "-c", ONE_RANK_WITHOUT], timeout=60).check()
    assert done.stdout.count("refused:") == 2, done.stdout
