"""Meta-training with a run directory: log, checkpoint, stop, resume."""

import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from mtnet.config import Config, classifies, data_of, family_of, learner_of
from mtnet.core.losses import predict
from mtnet.core.outer import State
from mtnet.core.types import InputError, Theta
from mtnet.runs.checkpoints import load_state, save_state
from mtnet.runs.run import Run, rewind_metrics
from mtnet.runs.trainer import shared, trainer

CHECKPOINT_EVERY = 5_000
VALIDATION_TASKS, VALIDATION_QUERIES = 200, 5


class Diverged(RuntimeError):
    """A loss that is no longer finite; the last checkpoint is from before it."""


class Stopped(RuntimeError):
    """Somebody asked training to stop; a checkpoint has been written."""


class Progress(NamedTuple):
    iteration: int
    loss: np.ndarray
    """Mean query loss since the last report, one a member."""


def train(
    run: Run,
    *,
    report: Callable[[Progress], None] = lambda _: None,
    warn: Callable[[str], None] = print,
    checkpoint_every: int = CHECKPOINT_EVERY,
    budget: float | None = None,
    tolerant: bool = False,
    cores: int = 1,
) -> State:
    """Train to the end from the newest whole checkpoint, or from the beginning.

    `budget` ends it earlier, after so many seconds of training in all. A member whose loss is no
    longer finite ends the training; with `tolerant` it stays at its last finite state while the
    others go on, and the metrics keep showing it. Several `cores` share each meta-batch.
    """
    config = run.config
    work, data, validate = trainer(config), data_of(config), validator(config)
    sign = 1 if classifies(config) else -1  # accuracy should grow, errors should not
    try:
        found = load_state(run.checkpoints, jax.eval_shape(work.begin), warn)
        done, state = found if found else (0, work.begin())
        seconds, best = rewind_metrics(run, done, sign)
        with (
            run.metrics.open("a") as log,
            _stop_signals() as stop,
            shared(work, config, cores) as go_on,
        ):
            while done < config.iterations and not (budget and seconds >= budget):
                now = min(config.log_every - done % config.log_every, config.iterations - done)
                began = time.monotonic()
                new, measured = go_on(state, data, now)
                losses = np.asarray(measured)
                seconds += time.monotonic() - began
                state = _keep_finite(state, new, losses, config, done, tolerant)
                done += now
                last = done == config.iterations or bool(stop) or bool(budget and seconds >= budget)
                line = {"iteration": done, "loss": losses.mean(axis=1, dtype=np.float64)}
                if config.validate_every and (done % config.validate_every < now or last):
                    line["validation"] = validate(state)
                    if sign * line["validation"].mean() > best:
                        best = sign * line["validation"].mean()
                        save_state(run.best, done, state.theta, keep=1)
                write_metrics(log, line | {"seconds": seconds})
                report(Progress(done, line["loss"]))
                if done % checkpoint_every < now or last or "validation" in line:
                    log.flush()
                    save_state(run.checkpoints, done, state)
                if stop and done < config.iterations:
                    raise Stopped(f"stopped at iteration {done}")
    except OSError as error:
        raise InputError(f"cannot write to {run.folder}: {error.strerror}") from None
    return state


def validator(config: Config) -> Callable[[State], np.ndarray]:
    """The metric on fixed tasks of the validation classes, one number a member."""
    if config.validate_every is None:
        return lambda state: np.empty(0)
    data = data_of(config, "validation")
    alphas = [alpha for _, alpha in config.members]

    @jax.jit
    def one(theta: Any, alpha: Array, data: Any) -> Array:
        queries = min(config.queries, VALIDATION_QUERIES)
        learner, family = learner_of(config, alpha), family_of(config, data, queries=queries)

        def score(key: Array) -> Array:
            to_draw, to_learn = jax.random.split(key)
            support, query = family.sample(to_draw)
            return family.metric(predict(learner.adapt(theta, support, to_learn), query.x), query.y)

        keys = jax.random.split(jax.random.key(0), VALIDATION_TASKS)
        return jax.lax.map(score, keys, batch_size=config.at_once or 50).mean()

    def measured(state: State) -> np.ndarray:
        thetas = [jax.tree.map(lambda a, m=m: a[m], state.theta) for m in range(len(alphas))]
        found = [one(t, jnp.asarray(a), data) for t, a in zip(thetas, alphas, strict=True)]
        return np.array(found)

    return measured


def trained(run: Run, warn: Callable[[str], None] = print) -> tuple[int, State]:
    """The newest whole checkpoint of a run."""
    found = load_state(run.checkpoints, jax.eval_shape(trainer(run.config).begin), warn)
    if found is None:
        raise InputError(f"{run.folder} has no whole checkpoint: train it with --resume first")
    return found


def chosen(run: Run, warn: Callable[[str], None] = print) -> tuple[int, Theta]:
    """The meta-parameters that did best on validation tasks, or the last ones."""
    like = jax.eval_shape(trainer(run.config).begin).theta
    found = load_state(run.best, like, warn)
    if found:
        return found
    iteration, state = trained(run, warn)
    return iteration, state.theta


def network(run: Run, warn: Callable[[str], None] = print) -> tuple[int, Theta]:
    """The same of the run's first network alone."""
    iteration, theta = chosen(run, warn)
    return iteration, jax.tree.map(lambda a: a[0], theta)


def write_metrics(log: Any, line: dict[str, Any]) -> None:
    """One JSON line; a number that is not finite is null, and reads as such."""

    def plain(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return [plain(float(x)) for x in value]
        return value if np.isfinite(value) else None

    log.write(json.dumps({name: plain(value) for name, value in line.items()}) + "\n")
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
