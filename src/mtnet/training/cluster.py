"""Which processes of a training start here, as flags, srun or mpirun say."""

import os
import re
import socket
import zlib
from typing import NamedTuple

import jax

from mtnet.errors import InputError
from mtnet.training.channel import Place

SLURM = ("SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID")
"""Variables of a process that srun has started."""
PORTS = range(61_440, 65_536)


class Launch(NamedTuple):
    """Which processes of a training start here."""

    processes: int
    """Of the training, on all hosts."""
    id: int | None
    """The one that starts here; None: all, one core each."""
    coordinator: str | None
    """HOST:PORT of process 0. None: a free port of this machine, or as JAX finds it."""
    restart: int
    """How often they are started again if one is lost."""

    @property
    def leads(self) -> bool:
        """Whether process 0, which has the run folder, starts here."""
        return not self.id

    @property
    def flags(self) -> str:
        """The flags of `mtnet train` that start the same processes."""
        if self.id is None:
            return f" --processes {self.processes}"
        if self.coordinator is None:
            return " (by srun or mpirun, as before)"
        at = f" --coordinator {self.coordinator}"
        return f"{at} --process-count {self.processes} --process-id {self.id}"

    @property
    def places(self) -> list[Place]:
        if self.id is not None:
            return [Place(self.id, self.processes, self.coordinator)]
        address = f"127.0.0.1:{_free_port()}"
        return [Place(i, self.processes, address) for i in range(self.processes)]


def choose_launch(
    processes: int | None,
    coordinator: str | None = None,
    count: int | None = None,
    number: int | None = None,
    restart: int = 0,
) -> Launch | None:
    """What the flags or the environment of srun and mpirun ask for; None: train in this process."""
    if restart < 0:
        raise InputError(f"restart must be 0 or more; it is {restart}")
    if processes is not None:
        if processes < 1:
            raise InputError(f"processes must be at least 1; it is {processes}")
        if (coordinator, count, number) != (None, None, None):
            raise InputError("--processes is for one machine: remove it, or --coordinator")
        chosen = Launch(processes, None, None, restart) if processes > 1 else None
    else:
        chosen = _between_hosts(coordinator, count, number, restart)
    if chosen is not None:
        jax.config.update("jax_platforms", "cpu")  # an accelerator is for the processes
    elif restart:
        raise InputError("--restart needs several processes: add --processes, or remove it")
    return chosen


def _between_hosts(
    coordinator: str | None, count: int | None, number: int | None, restart: int
) -> Launch | None:
    found = detect_cluster()
    if coordinator is None:
        if (count, number) != (None, None):
            raise InputError("--process-count and --process-id need --coordinator HOST:PORT")
        return found and Launch(found.processes, found.id, found.coordinator, restart)
    if not re.fullmatch(r"[^:\s]+:[0-9]+|\[[^\s]+\]:[0-9]+", coordinator):
        raise InputError(f"--coordinator must be HOST:PORT; it is {coordinator!r}")
    count = found.processes if count is None and found else count
    number = found.id if number is None and found else number
    if count is None or number is None:
        raise InputError("--coordinator needs --process-count N and --process-id I")
    if not 0 <= number < count:
        raise InputError(f"--process-id must be from 0 to {count - 1}; it is {number}")
    return Launch(count, number, coordinator, restart) if count > 1 else None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


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
