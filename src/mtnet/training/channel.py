"""How processes find each other and talk: the coordination service of `jax.distributed`.

Process 0 runs the service. Gradients do not go through it: they are exchanged inside the compiled
program (on CPUs by gloo).
"""

import json
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple

import jax
from jax.errors import JaxRuntimeError

from mtnet.errors import InputError, Lost

JOIN_SECONDS = 40
"""To wait for the other processes at the start."""
HEARTBEAT_SECONDS = 20
"""A process that is silent for so long is lost; a closed connection is noticed at once."""
SHUTDOWN_SECONDS = 10
POLL_MILLISECONDS = 1_000
MEET_MILLISECONDS = 3_600_000
"""Compiling may take long; a lost process ends the wait earlier."""

LOST = re.compile("(?i)gloo|coordination|barrier|heartbeat|unavailable|aborted|cancel")
"""In the text of an error of JAX: it is about other processes."""


class Ended(Exception):
    """Process 0 ended; `kind` names its error, empty if there was none."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class Place(NamedTuple):
    """One process among those that train together."""

    id: int
    processes: int
    """On all hosts."""
    coordinator: str | None
    """HOST:PORT of process 0; None if JAX finds it in the environment of srun or mpirun."""

    @property
    def local(self) -> bool:
        """Whether all processes are on this machine."""
        return self.coordinator is not None and self.coordinator.startswith("127.0.0.1:")


def join(place: Place) -> None:
    """Connect to the others; before JAX is used in any other way."""
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_enable_preemption_service", False)  # signals are handled by `train`
    options: dict[str, Any] = {}
    if place.coordinator is not None:
        _use_own_address(place.coordinator)
        options = {
            "coordinator_address": place.coordinator,
            "num_processes": place.processes,
            "process_id": place.id,
        }
    if place.local:
        options["coordinator_bind_address"] = place.coordinator
    if not {"SLURM_JOB_ID", "OMPI_COMM_WORLD_SIZE"} & os.environ.keys():
        options["cluster_detection_method"] = "deactivate"  # all that JAX needs is given
    try:
        jax.distributed.initialize(
            **options,
            initialization_timeout=JOIN_SECONDS,
            heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
            shutdown_timeout_seconds=SHUTDOWN_SECONDS,
        )
        jax.devices()  # all processes tell each other their devices now
    except RuntimeError as error:
        raise Lost(why_alone(place, str(error))) from None


def why_alone(place: Place, error: str = "") -> str:
    """Why a process could not join the others."""
    if place.id > 0:
        at = f" at {place.coordinator}" if place.coordinator else ""
        return f"process 0{at} did not answer within {JOIN_SECONDS} seconds"
    if "address already in use" in error.lower():
        return f"the port of {place.coordinator} is in use: choose another"
    return f"not all of {place.processes} processes came within {JOIN_SECONDS} seconds"


def leave() -> None:
    """Disconnect, at the end of a training that all processes have ended."""
    with suppress(JaxRuntimeError):
        jax.distributed.shutdown()


def _use_own_address(coordinator: str) -> None:
    """Let gloo listen at the address from which this host reaches process 0.

    By default it takes that of the host's name, which is 127.0.1.1 on many systems.
    """
    from jax._src.lib import _jax

    host, _, port = coordinator.rpartition(":")
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, int(port)))  # sends nothing
        address = probe.getsockname()[0]
        _jax.make_gloo_tcp_collectives = partial(_jax.make_gloo_tcp_collectives, hostname=address)


def client() -> Any:
    """The client of the coordination service, which has no public name in JAX."""
    from jax._src import distributed

    return distributed.global_state.client


@contextmanager
def connected() -> Iterator[None]:
    """An error of an exchange between processes is `Lost`."""
    try:
        yield
    except JaxRuntimeError as error:
        text = str(error)
        if not re.search(
            "(?i)gloo|coordination|barrier|heartbeat|unavailable|aborted|cancel", text
        ):
            raise
        peer = re.search(r"peer \[([^\]]+)\]", text)
        at = f" at {peer[1]}" if peer else ""
        raise Lost(f"lost the connection to another process{at}") from None


class Channel:
    """Messages of process 0 to all others, in order; meetings; and the wish of any one to stop."""

    def __init__(self) -> None:
        self.messages = self.meetings = 0

    def say(self, **message: Any) -> None:
        with connected():
            client().key_value_set(f"mtnet/message/{self.messages}", json.dumps(message))
        self.messages += 1

    def hear(self, signals: list[int]) -> dict[str, Any]:
        """The next message; meanwhile, process 0 learns of a signal that we got.

        Raises `Ended` if it is the last one.
        """
        while True:
            with connected():
                if signals:
                    me = jax.process_index()
                    client().key_value_set(f"mtnet/stop/{me}", "", allow_overwrite=True)
                try:
                    key = f"mtnet/message/{self.messages}"
                    message = client().blocking_key_value_get(key, POLL_MILLISECONDS)
                except JaxRuntimeError as error:
                    if "DEADLINE_EXCEEDED" not in str(error):
                        raise
                    continue
            self.messages += 1
            content = json.loads(message)
            if "end" in content:
                raise Ended(content["end"], content["text"])
            return content

    def asked_to_stop(self) -> bool:
        """Whether another process got a signal."""
        with connected():
            return bool(client().key_value_dir_get("mtnet/stop/"))

    def meet(self, problem: str | None = None) -> None:
        """Wait for all processes. If one of them has a problem, it is an InputError in each."""
        with connected():
            if problem is not None:
                client().key_value_set(f"mtnet/problem/{jax.process_index()}", problem)
            client().wait_at_barrier(f"mtnet/meeting/{self.meetings}", MEET_MILLISECONDS)
            problems = client().key_value_dir_get("mtnet/problem/")
        self.meetings += 1
        for key, text in problems:
            raise InputError(f"process {key.rpartition('/')[2]}: {text}")
