"""jobs/lab/hosts: hosts with a limited network on this machine, which leave no trace however they
end."""

import csv
import json
import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
from labs import JOBS, need, processes_with, wait_until
from launch import end, lab_environment, launch
from same_losses import assert_same_losses

from hpcgcn.graph.generate import generate_sbm
from hpcgcn.graph.store import write_graph
from hpcgcn.timeline.read import read_timeline
from hpcgcn.train import checkpoint

pytestmark = [pytest.mark.one_machine, pytest.mark.slow]

need("ip", "tc", "nsenter", "taskset")

LAB = str(JOBS / "lab" / "hosts")


def lab(*args, cwd=None, timeout=120) -> subprocess.CompletedProcess:
    return subprocess.run([LAB, *map(str, args)], cwd=cwd, env=lab_environment(),
                          capture_output=True, text=True, timeout=timeout)


def links() -> str:
    return subprocess.run(["ip", "-brief", "link"], capture_output=True, text=True,
                          env=lab_environment(), check=True).stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hosts")
    write_graph(folder / "g.h5", generate_sbm(500, 10, 12, 4, seed=1))
    return folder


def final(folder, name):
    return checkpoint.load(
        checkpoint.checkpoint_folders(str(folder / "runs" / name / "checkpoints"))[-1][1])


def losses(folder, name):
    with open(folder / "runs" / name / "metrics.csv", newline="") as file:
        return [float(row["loss"]) for row in csv.DictReader(file)]


@pytest.mark.parametrize("method", ["overlap", "sylvie-a"])
def test_training_over_tcp_equals_training_over_shared_memory(folder, method):
    args = ["hpcgcn", "train", "g.h5", "--hidden", "16", "--epochs", "12", "--method", method]
    done = lab("--hosts", 2, "--rate", "200mbit", "--", *args, "--name", f"tcp-{method}",
               cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    launch(2, [*args, "--name", f"memory-{method}"], cwd=folder).check()
    over_tcp, in_memory = final(folder, f"tcp-{method}"), final(folder, f"memory-{method}")
    assert over_tcp.epoch == 12
    np.testing.assert_array_equal(over_tcp.parameters, in_memory.parameters)


def test_hosts_have_names_links_of_the_rate_and_nothing_else():
    before = links()
    done = lab("--hosts", 3, "--rate", "50mbit", "--", "sh", "-c",
               "echo $(hostname) $(ip -o link | wc -l) $(tc qdisc show dev eth0)")
    assert done.returncode == 0, done.stderr
    lines = sorted(done.stdout.splitlines())
    assert [line.split()[0] for line in lines] == ["h1", "h2", "h3"]
    assert all(line.split()[1] == "2" and "tbf" in line and "rate 50Mbit" in line
               for line in lines), lines
    assert links() == before


def test_ranks_are_shared_out_evenly():
    done = lab("--hosts", 2, "--ranks", 3, "--", "sh", "-c", "hostname")
    assert (done.returncode, sorted(done.stdout.split())) == (0, ["h1", "h1", "h2"]), done.stderr


def test_feature_parallelism_shares_memory_on_a_host_and_not_between_them(folder):
    """mixgcn keeps the adjacency once per host, in a window of that host's ranks."""
    args = ["hpcgcn", "train", "g.h5", "--hidden", "16", "--epochs", "8", "--method", "mixgcn"]
    done = lab("--hosts", 2, "--ranks", 3, "--", *args, "--name", "tcp-mixgcn", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    launch(3, [*args, "--name", "memory-mixgcn"], cwd=folder).check()
    over_tcp, in_memory = ({"losses": losses(folder, f"{kind}-mixgcn")}
                           for kind in ("tcp", "memory"))
    assert_same_losses(over_tcp, in_memory, "mixgcn")


@pytest.mark.parametrize("method", ["overlap", "pipegcn", "sylvie-s", "sylvie-a"])
def test_columns_within_hosts_give_the_numbers_of_declared_hosts(folder, method):
    """Two hosts of two ranks over TCP are what --ranks-per-host 2 declares on one machine: exact,
    stale, coded, and both."""
    args = ["hpcgcn", "train", "g.h5", "--hidden", "16", "--epochs", "8", "--method", method,
            "--parallel", "hosts", "--threads", "1"]
    done = lab("--hosts", 2, "--ranks-per-host", 2, "--rate", "200mbit", "--", *args, "--name",
               f"tcp-hosts-{method}", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    launch(4, [*args, "--ranks-per-host", "2", "--name", f"memory-hosts-{method}"],
           cwd=folder).check()
    ran = [json.loads((folder / "runs" / f"{kind}-hosts-{method}" / "summary.json").read_text())
           for kind in ("tcp", "memory")]
    assert ran[0]["host_parts"] == 2
    assert 0 < ran[0]["bytes_network"] == ran[1]["bytes_network"] < ran[0]["bytes_sent"]
    np.testing.assert_array_equal(final(folder, f"tcp-hosts-{method}").parameters,
                                  final(folder, f"memory-hosts-{method}").parameters)


def test_exchanges_between_hosts():
    """A sample of `make test-lab`: two ranks on one host, one on the other."""
    mpi = JOBS.parent / "tests" / "communication"
    done = lab("--hosts", 2, "--ranks", 3, "--", sys.executable, "-m", "pytest", "--with-mpi", "-q",
               "-p", "no:cacheprovider", mpi / "test_mpi_transfer.py", mpi / "test_mpi_halo.py",
               mpi / "test_mpi_agreement.py", timeout=240)
    assert done.returncode == 0 and len(
        re.findall(r"\d+ passed", done.stdout)) == 3, done.stdout[-5000:] + done.stderr[-3000:]


def test_exit_code_of_the_command_is_the_labs():
    assert lab("--", "sh", "-c", "exit 75").returncode == 75


def test_two_labs_at_once_do_not_meet():
    jobs = [subprocess.Popen([LAB, "--", "sh", "-c", "hostname; sleep 2"], env=lab_environment(),
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for _ in range(2)]
    try:
        for job in jobs:
            stdout, stderr = job.communicate(timeout=60)
            assert job.returncode == 0, stderr
            assert sorted(stdout.split()) == ["h1", "h2"]
    finally:
        for job in jobs:
            job.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_lab_that_is_killed_takes_everything_with_it(tmp_path, number):
    mark = f"{tmp_path}/the-command"
    before = links()
    job = subprocess.Popen([LAB, "--", "sh", "-c", "echo up > $OMPI_COMM_WORLD_RANK$PMI_RANK.up; "
                                                   f"exec tail -f /dev/null {mark}"],
                           cwd=tmp_path, env=lab_environment(), stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        wait_until(lambda: len(list(tmp_path.glob("*.up"))) == 2, "both ranks")
        assert len(processes_with(mark)) >= 3
        job.send_signal(number)
        assert job.wait(30) == (-number if number == signal.SIGKILL else 128 + number)
        wait_until(lambda: not processes_with(mark), "the end of all ranks", 20)
    finally:
        end(job)
    assert links() == before


def test_a_link_can_change_while_the_command_runs():
    script = ('for i in $(seq 100); do tc qdisc show dev eth0 | grep -q "rate 5Mbit" && echo '
              '$(hostname) && exit; sleep 0.1; done')
    done = lab("--rate", "50mbit", "--change", "0.5:h2:5mbit", "--", "sh", "-c",
               f"test $(hostname) = h1 || {{ {script}; }}")
    assert (done.returncode, done.stdout) == (0, "h2\n"), done.stderr


@pytest.mark.parametrize("args, words", [
    (["--rate", "fast", "--", "true"], "1gbit"),
    (["--change", "5:h9:down", "--", "true"], "no host h9"),
    (["--hosts", "0", "--", "true"], "1 to 250 hosts"),
    (["--hosts", "3", "--ranks", "2", "--", "true"], "at least one rank"),
    (["--hosts", "2"], "usage"),
])
def test_wrong_arguments_are_explained(args, words):
    done = lab(*args)
    assert done.returncode == 2
    assert words in done.stderr and "Traceback" not in done.stderr


def test_missing_tools_and_rights_are_named(tmp_path):
    (tmp_path / "python3").symlink_to(sys.executable)
    (tmp_path / "env").symlink_to("/usr/bin/env")
    done = subprocess.run([LAB, "--", "true"], env={"PATH": str(tmp_path)}, capture_output=True,
                          text=True)
    assert done.returncode == 2 and "iproute2" in done.stderr
    if os.path.exists("/usr/bin/python3") and os.access(LAB, os.X_OK):
        done = subprocess.run(["/usr/bin/python3", LAB, "--", "true"],
                              env={"PATH": "/usr/bin:/bin"}, user=65534, cwd="/",
                              capture_output=True, text=True)
        assert done.returncode == 2 and ("root" in done.stderr or "denied" in done.stderr)


def test_no_message_of_a_trace_arrives_before_it_is_sent(folder):
    done = lab("--hosts", 2, "--ranks-per-host", 2, "--rate", "200mbit", "--", "hpcgcn", "train",
               "g.h5", "--hidden", "16", "--epochs", "8", "--trace", "--name", "traced", cwd=folder)
    assert done.returncode == 0, done.stderr
    timeline = read_timeline(str(folder / "runs" / "traced"))
    assert {rank.host for rank in timeline.ranks} == {"h1", "h2"}
    crossing = [message for message in timeline.messages if message.arrived is not None
                and timeline.ranks[message.sender].host != timeline.ranks[message.receiver].host]
    assert len(crossing) > 50 and all(message.arrived > message.sent for message in crossing)
