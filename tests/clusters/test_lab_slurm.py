"""The batch templates in a real Slurm: they run to the end, stop in time, queue themselves again
and go on."""

import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
from labs import JOBS, need, processes_with, wait_until
from launch import is_open_mpi, launch, rank_environment

from hpcgcn.graph.generate import generate_sbm
from hpcgcn.graph.store import write_graph
from hpcgcn.train import checkpoint

pytestmark = [pytest.mark.one_machine, pytest.mark.slow]

need("slurmctld", "slurmd", "munged", "sbatch")
if not is_open_mpi():
    pytest.skip("the templates start ranks with srun --mpi=pmix, which this MPI does not speak",
                allow_module_level=True)

LAB = str(JOBS / "lab" / "slurm")
SMALL = ["--nodes=1", "--ntasks-per-node=2", "--cpus-per-task=1", "--time=10"]


class Slurm:
    """A lab that runs, and a folder to submit from."""

    def __init__(self, folder):
        self.folder, self.lab = folder, folder / "lab"
        self.env = rank_environment()
        self.env["PATH"] += ":/usr/sbin:/sbin"
        subprocess.run([LAB, "start", "--folder", self.lab], env=self.env, check=True, timeout=60)
        self.env |= {"SLURM_CONF": str(self.lab / "slurm.conf"), "PMIX_MCA_psec": "native"}

    def call(self, *args, **more_env) -> str:
        done = subprocess.run(list(map(str, args)), cwd=self.folder, env=self.env | more_env,
                              capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{args}: {done.stderr}\n{self.logs()}"
        return done.stdout

    def submit(self, *args) -> str:
        return self.call("sbatch", "--parsable", *SMALL, *args).strip()

    def facts(self, job: str) -> dict[str, str]:
        return dict(re.findall(r"(\w+)=(\S+)", self.call("scontrol", "show", "job", job)))

    def wait(self, job: str, seconds: float = 120):
        """Until the job is done; anything but a good end fails."""
        ended = ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL")
        wait_until(lambda: self.facts(job)["JobState"] in ended,
                   f"the end of job {job}\n{self.logs()}", seconds)
        assert self.facts(job)["JobState"] == "COMPLETED", self.logs()

    def logs(self) -> str:
        files = [*self.folder.glob("*.out"), *self.lab.glob("slurm*.log")]
        return "\n".join(f"== {file.name}\n{file.read_text()[-2000:]}" for file in files)

    def final(self, name: str):
        return checkpoint.load(
            checkpoint.checkpoint_folders(str(self.folder / "runs" / name / "checkpoints"))[-1][1])


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    folder = tmp_path_factory.mktemp("slurm")
    write_graph(folder / "g.h5", generate_sbm(400, 8, 12, 4, seed=1))
    # What the templates' first line activates: the environment of this Python.
    activate = folder / ".venv" / "bin" / "activate"
    activate.parent.mkdir(parents=True)
    activate.write_text(f'export PATH="{os.path.dirname(sys.executable)}:$PATH"\n')
    slurm = Slurm(folder)
    try:
        yield slurm
    finally:
        subprocess.run([LAB, "stop", "--folder", slurm.lab], env=slurm.env, check=True, timeout=60)
        assert not processes_with(str(slurm.lab))


@pytest.mark.parametrize("plugin", ["none", "pmi2"])
def test_srun_that_does_not_speak_pmix_is_refused(slurm, plugin):
    """Every rank would take itself for the whole job, and all would write to one folder."""
    done = subprocess.run(["srun", f"--mpi={plugin}", "--ntasks=2", "--cpus-per-task=1",
                           "--overcommit", "hpcgcn", "train", "g.h5", "--epochs", "2", "--name",
                           plugin], cwd=slurm.folder, env=slurm.env, capture_output=True, text=True,
                          timeout=120)
    assert done.returncode != 0 and not (slurm.folder / "runs" / plugin).exists()
    told = [line for line in done.stderr.splitlines() if line.startswith("hpcgcn: ")]
    assert len(told) == 1, done.stderr
    assert "the launcher started 2 ranks" in told[0] and "srun --mpi=pmix" in told[0]
    assert "Traceback" not in done.stderr and "epoch" not in done.stdout


LIMITED = """model = "sage"
hidden = 16
method = "pipegcn"
epochs = {}
eval_every = 0
checkpoint_every = 0
"""


@pytest.fixture(scope="module")
def limited(slurm) -> str:
    """A job that cannot finish within its time limit, submitted first: Slurm takes up to half a
    minute to notice."""
    (slurm.folder / "limited.toml").write_text(LIMITED.format(1_000_000))
    return slurm.submit("--time=1", "--signal=USR1@45", "--job-name=limited", JOBS / "cpu.sbatch",
                        "g.h5", "--config limited.toml")


def test_cpu_template_runs_to_the_end_and_then_says_so(slurm, limited):
    settings = "--epochs 6 --hidden 16"
    slurm.wait(slurm.submit("--job-name=cpu", JOBS / "cpu.sbatch", "g.h5", settings))
    assert slurm.final("cpu").epoch == 6
    again = slurm.submit("--job-name=cpu", JOBS / "cpu.sbatch", "g.h5", settings)
    slurm.wait(again)
    assert "finished" in (slurm.folder / f"cpu-{again}.out").read_text()


def test_sweep_runs_one_method_a_task(slurm, limited):
    job = slurm.submit("--array=2,4", "--job-name=sweep", JOBS / "sweep-array.sbatch", "g.h5",
                       "--epochs 5 --hidden 16")
    for task in (2, 4):
        slurm.wait(f"{job}_{task}")
    assert slurm.final("sweep-pipegcn").epoch == slurm.final("sweep-sylvie-a").epoch == 5


def test_training_waits_for_its_partition(slurm, limited):
    said = slurm.call(JOBS / "partition-then-train", "g.h5", "2", JOBS / "cpu.sbatch",
                      "--epochs 4 --hidden 16",
                      TRAIN_OPTIONS=" ".join([*SMALL, "--job-name=chain"]))
    first, second = re.findall(r"job (\d+)", said)
    assert (first in slurm.facts(second)["Dependency"]
            or slurm.facts(first)["JobState"] == "COMPLETED")
    slurm.wait(second)
    assert slurm.final("chain").epoch == 4 and (slurm.folder / "g-2.h5").exists()


def test_job_at_its_time_limit_goes_on_and_ends_like_an_uninterrupted_run(slurm, limited):
    wait_until(lambda: slurm.facts(limited)["Restarts"] == "1", "the job to queue itself again", 90)
    wait_until(lambda: slurm.facts(limited)["JobState"] == "PENDING", "the end of its first part",
               30)
    done = slurm.final("limited").epoch
    assert 0 < done < 1_000_000
    (slurm.folder / "limited.toml").write_text(LIMITED.format(done + 25))
    # Slurm lets a job that comes back wait for two minutes; slurmd refuses it in the second in
    # which it ended before.
    slurm.call("scontrol", "update", f"jobid={limited}", "StartTime=now+4", "TimeLimit=10")
    slurm.wait(limited)
    text = (slurm.folder / f"limited-{limited}.out").read_text()
    assert f"{done} epochs done" in text and "stopped early" in text
    launch(2, ["hpcgcn", "train", "g.h5", "--config", "limited.toml", "--name", "straight",
               "--threads", "1"], cwd=slurm.folder).check()
    resumed, straight = slurm.final("limited"), slurm.final("straight")
    assert resumed.epoch == straight.epoch == done + 25
    for array in ("parameters", "m", "v"):
        np.testing.assert_array_equal(getattr(resumed, array), getattr(straight, array))


def test_gpu_template_is_a_script_that_slurm_accepts(slurm, limited):
    """No GPU here: Slurm reads its options and refuses the GPUs alone."""
    done = subprocess.run(["sbatch", "--test-only", *SMALL, str(JOBS / "gpu.sbatch")],
                          cwd=slurm.folder, env=slurm.env,
                          capture_output=True, text=True, timeout=60)
    assert re.search(r"gres|gpu|TRES|Requested node configuration", done.stderr,
                     re.IGNORECASE), done.stderr
    assert subprocess.run(["bash", "-n", str(JOBS / "gpu.sbatch")]).returncode == 0


def test_a_lab_that_is_killed_takes_its_daemons_and_jobs_with_it(tmp_path):
    folder, env = tmp_path / "lab", rank_environment()
    env["PATH"] += ":/usr/sbin:/sbin"
    job = subprocess.Popen([LAB, "run", "--folder", folder, "--", "sh", "-c",
                            f"echo up > {tmp_path}/up; exec sleep 1000"],
                           env=env, start_new_session=True)
    try:
        wait_until((tmp_path / "up").exists, "the command")
        assert len(processes_with(str(folder))) >= 4  # the lab, munged, slurmctld, slurmd
        job.send_signal(signal.SIGKILL)
        job.wait(10)
        wait_until(lambda: not processes_with(str(folder)), "the end of all daemons", 20)
    finally:
        job.kill()
