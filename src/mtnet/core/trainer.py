"""Meta-training from Python: compiled chunks of meta-steps, with progress and resume."""

import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, Key

from mtnet.core.mesh import over_tasks, task_mesh
from mtnet.core.outer import TrainState, init_state, meta_step
from mtnet.core.types import Family, Learner, MetaParams
from mtnet.errors import InputError, check_options

Optimiser: TypeAlias = optax.GradientTransformation | Callable[[Any], Any] | float


class MetaTraining(NamedTuple):
    """Result of `meta_train`."""

    theta: MetaParams
    """Meta-parameters."""
    losses: Float[Array, " iterations"]
    """Mean query loss of the meta-batch, per iteration."""
    state: TrainState
    """What `resume` continues from."""


@check_options
def meta_train(
    learner: Learner,
    family: Family | Callable[[Any], Family],
    *,
    iterations: int,
    key: Key[Array, ""] | None = None,
    data: Any = None,
    meta_batch: int = 25,
    optimiser: Optimiser = 1e-3,
    tasks_per_vmap: int | None = None,
    callback: Callable[[int, float], None] | None = None,
    progress: bool | None = None,
    report_every: int = 100,
    resume: MetaTraining | None = None,
) -> MetaTraining:
    """Meta-train a learner on a family of tasks (Algorithms 1 and 2).

    If JAX has several devices, those that divide `meta_batch` share its tasks.

    Args:
        learner: The learner, e.g. `mt_net(net)`.
        family: Where tasks are drawn from. If it holds large arrays, a function of `data` that
            returns it: as constants of the program they would compile for minutes.
        iterations: Meta-steps; with `resume`, further meta-steps.
        key: Random key; the same key gives the same result. Required unless `resume` is given.
        data: Argument of `family` if that is a function.
        meta_batch: Tasks per meta-step.
        optimiser: An optax optimiser; or the step size of Adam, a number or an optax schedule.
            Default: 1e-3, as in section 6.1.
        tasks_per_vmap: Tasks per vectorised program; it divides `meta_batch`. Default: all.
        callback: `(iteration, loss)`, called every `report_every` iterations with the mean query
            loss since the last call.
        progress: Print a progress line to stderr. Default: if stderr is a terminal.
        report_every: Iterations between two reports.
        resume: The result of an earlier call with the same learner, family and optimiser. Training
            continues from it, and equals one long call bit for bit.

    Returns:
        Meta-parameters, losses of all iterations, and the state to resume from.
    """
    counts = {"iterations": iterations, "meta_batch": meta_batch, "report_every": report_every}
    for name, value in counts.items():
        if value < 1:
            raise InputError(f"{name} must be at least 1; it is {value}")
    optimiser = _optimiser(optimiser)
    state = _first_state(learner, optimiser, key) if resume is None else _resumed(resume, key)
    report = _report(callback, sys.stderr.isatty() if progress is None else progress)
    size = iterations if report is None else min(report_every, iterations)
    losses = [] if resume is None else [resume.losses]
    for start in range(0, iterations, size):
        length = min(size, iterations - start)
        state, chunk = _run_chunk(
            *(learner, family, optimiser, state, data, jnp.asarray(length)),
            *(size, meta_batch, tasks_per_vmap),
        )
        losses.append(chunk[:length])
        if report is not None and not isinstance(chunk, jax.core.Tracer):  # not inside jit
            report(int(state.iteration), start + length, iterations, float(np.mean(losses[-1])))
    return MetaTraining(state.theta, _concatenate(losses), state)


def _report(
    callback: Callable[[int, float], None] | None, show: bool
) -> Callable[[int, int, int, float], None] | None:
    """`(iteration, done, total, loss)`: print a line and call back; None without either."""

    def report(iteration: int, done: int, total: int, loss: float) -> None:
        if show:
            end = "\n" if done == total else ""
            line = f"\riteration {done}/{total}, query loss {loss:<12.4g}"
            print(line, end=end, file=sys.stderr, flush=True)
        if callback is not None:
            callback(iteration, loss)

    return report if show or callback is not None else None


def _concatenate(losses: list[Array]) -> Array:
    """By NumPy unless traced: a program that joins hundreds of chunks would have to be compiled."""
    traced = any(isinstance(chunk, jax.core.Tracer) for chunk in losses)
    return jnp.concatenate(losses) if traced else jnp.asarray(np.concatenate(losses))


@lru_cache(maxsize=64)
def _adam(step_size: Any) -> optax.GradientTransformation:
    """One object per step size, so that its compiled programs are used again."""
    return optax.adam(step_size)


def _optimiser(optimiser: Optimiser) -> optax.GradientTransformation:
    """An optax optimiser as it is, a step size or schedule as Adam's."""
    if hasattr(optimiser, "update"):
        return optimiser
    return optax.adam(optimiser) if isinstance(optimiser, jax.Array) else _adam(optimiser)


def _first_state(
    learner: Learner, optimiser: optax.GradientTransformation, key: Key[Array, ""] | None
) -> TrainState:
    if key is None:
        raise InputError("meta_train needs a key, e.g. key=jax.random.key(0)")
    to_start, to_train = jax.random.split(key)
    return init_state(learner, optimiser, to_start)._replace(key=to_train)


def _resumed(resume: MetaTraining, key: Key[Array, ""] | None) -> TrainState:
    if key is not None:
        raise InputError("resume continues with the key of the first call: remove key")
    return resume.state


@eqx.filter_jit
def _run_chunk(
    learner: Learner,
    family: Family | Callable[[Any], Family],
    optimiser: optax.GradientTransformation,
    state: TrainState,
    data: Any,
    length: Int[Array, ""],
    longest: int,
    meta_batch: int,
    tasks_per_vmap: int | None,
) -> tuple[TrainState, Float[Array, " longest"]]:
    """`length` meta-steps, on all devices. The length is traced: one program for every chunk."""
    tasks = family if isinstance(family, Family) else family(data)
    mesh = task_mesh(meta_batch, jax.local_devices())

    def one(i: Array, carry: tuple[TrainState, Array]) -> tuple[TrainState, Array]:
        state, losses = carry
        assert state.key is not None
        state, loss = meta_step(
            *(learner, tasks, optimiser, state, state.key, meta_batch, tasks_per_vmap),
            divided=mesh is not None,
        )
        return state, losses.at[i].set(loss.astype(losses.dtype))

    def run(state: TrainState, length: Array) -> tuple[TrainState, Array]:
        return jax.lax.fori_loop(0, length, one, (state, jnp.zeros(longest)))

    return (run if mesh is None else over_tasks(run, mesh))(state, length)
