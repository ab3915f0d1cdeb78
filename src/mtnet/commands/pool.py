"""The flags that say where many runs are trained: on this machine, or on a Ray cluster."""

from mtnet.commands.common import check_not_negative, check_positive
from mtnet.errors import InputError
from mtnet.training.ray_pool import Cluster


def choose_cluster(
    ray: str | None, ray_cpus: int, ray_gpus: int, jobs: int | None
) -> Cluster | None:
    """The cluster of `--ray`; None for this machine."""
    check_positive(ray_cpus=ray_cpus, jobs=jobs)
    check_not_negative(ray_gpus=ray_gpus)
    if ray is None:
        if (ray_cpus, ray_gpus) != (1, 0):
            raise InputError("--ray-cpus and --ray-gpus need --ray ADDRESS")
        return None
    if jobs is not None:
        raise InputError("--jobs is for this machine: with --ray, the cluster decides; remove it")
    return Cluster(ray, ray_cpus, ray_gpus)
