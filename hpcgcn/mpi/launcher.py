"""What the launcher says about this job, known without MPI; and whether MPI agrees.

A launcher that dies while MPI starts, or one that speaks another protocol than this MPI (`srun`
without PMIx), leaves every process alone: each would take itself for the whole job.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from hpcgcn.errors import ConfigError

# How long the other ranks wait for the first one's message, where they cannot agree through MPI.
SPEAKER_SECONDS = 2.0
# What launchers call the rank of a process.
RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
# What they call the number of ranks; the first that is set counts, as mpirun may run inside srun.
_SIZE_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "PALS_SIZE")
# Slurm sets this in steps that srun started, not in batch scripts.
_STEP_SIZE = "SLURM_STEP_NUM_TASKS"
# What they call the number of a process on its host.
_LOCAL_RANKS = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "MV2_COMM_WORLD_LOCAL_RANK",
                "PALS_LOCAL_RANKID", "SLURM_LOCALID")
# Ranks on this host alone: a lower bound.
_LOCAL_SIZES = ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")


def launched_rank(environment: Mapping[str, str] = os.environ) -> str | None:
    """The rank of this process as its launcher says, or None without a launcher."""
    return next((environment[name] for name in RANK_VARIABLES if name in environment), None)


def launched_local_rank(environment: Mapping[str, str] = os.environ) -> int | None:
    """The number of this process among those of its host, or None if no launcher says."""
    return next((int(environment[name]) for name in _LOCAL_RANKS
                 if environment.get(name, "").isdecimal()), None)


def launched_size(environment: Mapping[str, str] = os.environ) -> tuple[str, int] | None:
    """(variable, ranks that the launcher has started, at least), or None without a launcher."""
    for names in (_SIZE_VARIABLES, (_STEP_SIZE,), _LOCAL_SIZES):
        for name in names:
            if environment.get(name, "").isdecimal():
                return name, int(environment[name])
    return None


def check_size(size: int, environment: Mapping[str, str] = os.environ):
    """Refuse a job whose MPI connects fewer processes than its launcher has started."""
    launched = launched_size(environment)
    if launched is None or size >= launched[1]:
        return
    name, n_started = launched
    srun = ("; srun has to speak PMIx: srun --mpi=pmix (`srun --mpi=list` shows what it can), or "
            "use mpirun in the job script") if "SLURM_STEP_ID" in environment else ""
    raise ConfigError(f"the launcher started {n_started} ranks ({name}), but MPI connects {size}: "
                      f"it was ended while MPI started, or belongs to another MPI than the one "
                      f"that mpi4py uses (`hpcgcn doctor` names it){srun}")
