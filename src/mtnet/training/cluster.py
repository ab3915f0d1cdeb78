"""Which process of how many this is, as srun or mpirun says."""

import os
import zlib

from mtnet.errors import InputError
from mtnet.training.channel import Place

SLURM = ("SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID")
"""Variables of a process that srun has started."""
PORTS = range(61_440, 65_536)


def detect_cluster() -> Place | None:
    """The place of this process; None if it was not started by srun or mpirun, or alone.

    JAX itself finds process 0 of Slurm and of Open MPI up to version 4.
    """
    get = os.environ.get
    if (count := int(get("OMPI_COMM_WORLD_SIZE", "1"))) > 1:
        coordinator = None if get("OMPI_MCA_orte_hnp_uri") else _open_mpi_5(count)
        return Place(int(os.environ["OMPI_COMM_WORLD_RANK"]), count, coordinator)
    if all(name in os.environ for name in SLURM) and int(os.environ["SLURM_NTASKS"]) > 1:
        return Place(int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"]), None)
    return None


def _open_mpi_5(count: int) -> str:
    """It does not say where process 0 is, except that all are on one host."""
    if int(os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE", "0")) != count:
        raise InputError("Open MPI 5 does not say where process 0 is: add --coordinator HOST:PORT")
    job = os.environ.get("PMIX_NAMESPACE", "")
    return f"127.0.0.1:{PORTS[zlib.crc32(job.encode()) % len(PORTS)]}"
