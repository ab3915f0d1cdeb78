"""Runs as tasks of a Ray cluster, instead of processes on this machine.

Ray runs a task again, on another node, if its process or node is lost; the training resumes from
the newest checkpoint in its run folder. All nodes must see the folder of the command.
"""

import logging
import os
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import jax

from mtnet.errors import InputError, Lost
from mtnet.storage.lock import InUse
from mtnet.training.processes import RESUME, workers

RETRIES = 20
"""How often a run may lose its process or node."""
CONNECT_SECONDS = 5
UNLOCK_SECONDS = 120
"""How long a run that was lost may keep its folder: a process that still dies, a file server that
waits for a host that vanished."""
STOP_SECONDS = 60
"""To write checkpoints after Ctrl-C."""


class Cluster(NamedTuple):
    """A Ray cluster, and what one run needs of it."""

    address: str
    """As `ray.init` takes it: auto, HOST:PORT, or ray://HOST:PORT."""
    cpus: int = 1
    gpus: int = 0


def pool_on(cluster: Cluster | None, jobs: int) -> AbstractContextManager[Executor]:
    """Workers on a cluster, or this many on this machine."""
    return workers(jobs) if cluster is None else ray_workers(cluster)


@contextmanager
def ray_workers(cluster: Cluster) -> Iterator[Executor]:
    """An executor whose tasks run on a cluster; an error or Ctrl-C ends them."""
    ray = _connect(cluster)
    pool = RayPool(ray, cluster)
    try:
        yield pool
    except BaseException:
        pool.stop()
        raise
    finally:
        ray.shutdown()


def _connect(cluster: Cluster) -> Any:
    """The module `ray`, connected."""
    try:
        import ray
    except ModuleNotFoundError:
        raise InputError("--ray needs Ray: pip install 'mtnet[ray]'") from None
    _check_reachable(cluster.address)
    try:
        ray.init(cluster.address, log_to_driver=False, logging_level=logging.CRITICAL)
    except Exception as error:  # each kind of address fails in another way
        raise InputError(f"{_unreachable(cluster.address)} ({error})") from None
    for name, wanted in {"CPU": cluster.cpus, "GPU": cluster.gpus}.items():
        largest = max((node["Resources"].get(name, 0) for node in ray.nodes()), default=0)
        if wanted > largest:
            ray.shutdown()
            raise InputError(
                f"a run needs {wanted} {name}s, but no node of {cluster.address} now has more than "
                f"{largest:g}: use a smaller --ray-{name.lower()}s"
            )
    return ray


def _check_reachable(address: str) -> None:
    """Ray itself waits long for a host that does not answer."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        try:
            socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
        except (OSError, OverflowError) as error:
            raise InputError(f"{_unreachable(address)} ({error})") from None


def _unreachable(address: str) -> str:
    return f"no Ray cluster answers at {address}: start one with ray start --head"


class RayPool(Executor):
    """`submit`, as of the executors of the standard library."""

    def __init__(self, ray: Any, cluster: Cluster) -> None:
        options = {"num_cpus": cluster.cpus, "num_gpus": cluster.gpus, "max_retries": RETRIES}
        self._ray, self._remote = ray, ray.remote(**options)(call_in_folder)
        self._cache = os.environ.get("JAX_COMPILATION_CACHE_DIR")
        self._running: dict[Future[Any], Any] = {}

    def submit(self, function: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        task = self._remote.remote(Path.cwd(), self._cache, function, args, options)
        future: Future[Any] = Future()
        self._running[future] = task

        def done(source: Future[Any]) -> None:
            error = source.exception()
            if error is None:
                future.set_result(source.result())
            else:
                future.set_exception(_plain(error))

        task.future().add_done_callback(done)
        return future

    def stop(self) -> None:
        """End what runs; a training writes a checkpoint first."""
        tasks = [task for future, task in self._running.items() if not future.done()]
        for task in tasks:
            self._ray.cancel(task)
        with suppress(Exception):  # they were cancelled
            self._ray.wait(tasks, num_returns=len(tasks), timeout=STOP_SECONDS)


def _plain(error: BaseException) -> BaseException:
    """The error of the function itself, without Ray's text around it."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, BaseException):
        return cause
    return Lost(f"a run was lost {RETRIES + 1} times ({type(error).__name__}); {RESUME}")


def call_in_folder(
    folder: Path,
    cache: str | None,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    options: dict[str, Any],
) -> Any:
    """In a worker of Ray: call a function where the command was started."""
    try:
        os.chdir(folder)
    except OSError as error:
        raise InputError(
            f"{socket.gethostname()} cannot use {folder} ({error.strerror}): start the command in "
            "a folder that all nodes of the cluster share"
        ) from None
    if cache is not None:
        jax.config.update("jax_compilation_cache_dir", cache)
    deadline = time.monotonic() + UNLOCK_SECONDS
    while True:
        try:
            return function(*args, **options)
        except InUse:
            if time.monotonic() > deadline:
                raise
            time.sleep(1)
