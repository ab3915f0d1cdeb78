"""Meta-training with a run directory: log, checkpoint, stop, resume."""

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from mtnet.config import Config, family_of, learner_of, optimiser_of
from mtnet.core.outer import State, advance, start
from mtnet.core.types import InputError
from mtnet.runs.checkpoints import load_state, save_state
from mtnet.runs.run import Run, rewind_metrics

LOG_EVERY = 500
CHECKPOINT_EVERY = 5_000


class Diverged(RuntimeError):
    """A loss that is no longer finite; the last checkpoint is from before it."""


class Stopped(RuntimeError):
    """Somebody asked training to stop; a checkpoint has been written."""


class Progress(NamedTuple):
    iteration: int
    loss: np.ndarray
    """Mean query loss since the last report, one a member."""


class Trainer(NamedTuple):
    """The compiled parts of a training, for all members of a config together."""

    begin: Callable[[], State]
    go_on: Callable[[State, int], tuple[State, Array]]


def trainer(config: Config) -> Trainer:
    """Members (seeds, and step sizes of a sweep) are one more axis: a row is one program."""
    family, optimiser = family_of(config), optimiser_of(config)
    seeds, alphas = zip(*config.members, strict=True)
    keys = jax.vmap(jax.random.split)(jax.vmap(jax.random.key)(jnp.array(seeds)))
    step_sizes = jnp.array(alphas)

    @jax.jit
    def begin() -> State:
        return jax.vmap(lambda key, a: start(learner_of(config, a), optimiser, key))(
            keys[:, 0], step_sizes
        )

    def go_on(state: State, iterations: int) -> tuple[State, Array]:
        def one(state: State, key: Array, alpha: Array) -> tuple[State, Array]:
            return advance(
                learner_of(config, alpha),
                family,
                optimiser,
                state,
                key,
                iterations=iterations,
                meta_batch=config.meta_batch,
            )

        return jax.vmap(one)(state, keys[:, 1], step_sizes)

    return Trainer(begin, jax.jit(go_on, static_argnums=1))


def train(
    run: Run,
    *,
    report: Callable[[Progress], None] = lambda _: None,
    warn: Callable[[str], None] = print,
    checkpoint_every: int = CHECKPOINT_EVERY,
    tolerant: bool = False,
) -> State:
    """Train to the end from the newest whole checkpoint, or from the beginning.

    A member whose loss is no longer finite ends the training; with `tolerant` it stays at its
    last finite state while the others go on, and the metrics keep showing it.
    """
    config = run.config
    work = trainer(config)
    try:
        found = load_state(run.checkpoints, jax.eval_shape(work.begin), warn)
        done, state = found if found else (0, work.begin())
        rewind_metrics(run, done)
        with run.metrics.open("a") as log, _stop_signals() as stop:
            while done < config.iterations:
                now = min(LOG_EVERY, config.iterations - done)
                new, measured = work.go_on(state, now)
                losses = np.asarray(measured)
                state = _keep_finite(state, new, losses, config, done, tolerant)
                done += now
                means = losses.mean(axis=1, dtype=np.float64)
                write_metrics(log, done, means)
                report(Progress(done, means))
                if done % checkpoint_every < now or done == config.iterations or stop:
                    log.flush()
                    save_state(run.checkpoints, done, state)
                if stop and done < config.iterations:
                    raise Stopped(f"stopped at iteration {done}")
    except OSError as error:
        raise InputError(f"cannot write to {run.folder}: {error.strerror}") from None
    return state


def trained(run: Run, warn: Callable[[str], None] = print) -> tuple[int, State]:
    """The newest whole checkpoint of a run."""
    found = load_state(run.checkpoints, jax.eval_shape(trainer(run.config).begin), warn)
    if found is None:
        raise InputError(f"{run.folder} has no whole checkpoint: train it with --resume first")
    return found


def write_metrics(log: Any, iteration: int, losses: np.ndarray) -> None:
    """One JSON line; a loss that is not finite is null, and reads as such."""
    values = [float(x) if np.isfinite(x) else None for x in losses]
    log.write(json.dumps({"iteration": iteration, "loss": values}) + "\n")
    log.flush()


def _keep_finite(
    old: State, new: State, losses: np.ndarray, config: Config, done: int, tolerant: bool
) -> State:
    good = np.isfinite(losses).all(axis=1)
    for leaf in jax.tree.leaves(new.theta):
        good &= np.isfinite(np.asarray(leaf).reshape(len(good), -1)).all(axis=1)
    if good.all():
        return new
    if not tolerant:
        member = int(np.argmin(good))
        bad = ~np.isfinite(losses[member])
        at = done + (int(np.argmax(bad)) if bad.any() else len(bad))
        seed, alpha = config.members[member]
        raise Diverged(
            f"the loss of seed {seed} (alpha {alpha:g}) is not finite from iteration {at} on: "
            "try a smaller --alpha or --beta, fewer --steps, or --first-order; "
            "the last checkpoint is from before it"
        )

    def select(a: Array, b: Array) -> Array:
        return jnp.where(jnp.asarray(good).reshape((-1,) + (1,) * (a.ndim - 1)), b, a)

    return jax.tree.map(select, old, new)


@contextmanager
def _stop_signals() -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM, so that training ends between two chunks; twice means now."""
    received: list[int] = []

    def note(number: int, _: Any) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)

    try:
        before = {s: signal.signal(s, note) for s in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: signals are somebody else's business
        before = {}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
