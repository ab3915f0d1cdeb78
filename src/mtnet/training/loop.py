"""Meta-training in a run folder: log, validate, checkpoint, stop, resume."""

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

from mtnet.build import init_members, is_classification, load_data
from mtnet.config import Config
from mtnet.core.outer import TrainState
from mtnet.errors import Diverged, InputError, Stopped
from mtnet.files import sweep
from mtnet.storage.checkpoints import best_score, load_state, save_state
from mtnet.storage.lock import locked
from mtnet.storage.networks import load_body
from mtnet.storage.run_folder import Run, rewind_metrics
from mtnet.training.compiled import RunChunk, compile_chunk
from mtnet.training.validation import compile_validation

CHECKPOINT_EVERY = 5_000


class Progress(NamedTuple):
    iteration: int
    loss: np.ndarray
    """Mean query loss since the last report, one number per member."""
    validation: np.ndarray | None = None
    """Validation score of each member, if it was measured now."""
    theta: Any = None
    """Meta-parameters of all members."""


class Position(NamedTuple):
    """Where a training is."""

    done: int
    """Iterations."""
    state: TrainState
    seconds: float
    """Time spent in training."""
    best: float
    """The best validation score so far; higher is better."""


def train(
    run: Run,
    *,
    report: Callable[[Progress], None] = lambda _: None,
    warn: Callable[[str], None] = print,
    checkpoint_every: int = CHECKPOINT_EVERY,
    budget: float | None = None,
    deadline: float | None = None,
    tolerant: bool = False,
    compile_training: Callable[[Config], RunChunk] = compile_chunk,
) -> TrainState:
    """Train to the last iteration, from the newest undamaged checkpoint or from the start.

    Metrics, validation scores and the best network depend on the config only: an interrupted and
    resumed training gives the same as an uninterrupted one.

    Args:
        run: The run folder.
        report: Called after every chunk of `log_every` iterations.
        warn: Called with a line of text, e.g. about a damaged checkpoint.
        checkpoint_every: Iterations between two checkpoints.
        budget: Stop after this many seconds of training in total.
        deadline: Stop at this time (`time.monotonic()`), but not before one chunk is done.
        tolerant: Keep the last finite state of a member that diverges and train the others on;
            by default a diverging member raises `Diverged`.
        compile_training: Makes the program; `mtnet.training.together.lead` divides it among
            processes. Default: on all devices of this process.

    Returns:
        The last state.
    """
    config, outer = run.config, run.config.outer
    data, validate = load_data(config), compile_validation(config)
    try:
        with _resumed(run, warn) as (at, log), stop_signals() as signals:
            run_chunk = compile_training(config)
            while at.done < outer.iterations and not _is_over(at, budget, deadline):
                size = min(outer.log_every - at.done % outer.log_every, outer.iterations - at.done)
                at, loss = _train_chunk(run_chunk, config, data, at, size, tolerant)
                line: dict[str, Any] = {"iteration": at.done, "loss": loss}
                if _is_due(at.done, size, outer.validate_every, outer.iterations):
                    line["validation"] = validate(at.state)
                    at = _keep_best(run, at, line["validation"])
                write_metrics(log, line | {"seconds": at.seconds})
                report(Progress(at.done, loss, line.get("validation"), at.state.theta))
                due = _is_due(at.done, size, checkpoint_every, outer.iterations)
                stop = bool(signals)  # a signal that comes later stops after the next chunk
                if due or stop or _is_over(at, budget, deadline) or "validation" in line:
                    save_state(run.checkpoints, at.done, at.state)
                if stop and at.done < outer.iterations:
                    raise Stopped(f"stopped at iteration {at.done}")
    except OSError as error:
        raise InputError(f"cannot write to {run.folder}: {error.strerror}") from None
    return at.state


@contextmanager
def _resumed(run: Run, warn: Callable[[str], None]) -> Iterator[tuple[Position, Any]]:
    """Where to go on, and the open metrics; no other process can train in the folder."""
    with locked(run.folder):
        for folder in (run.folder, run.checkpoints, run.best):
            sweep(folder)
        at = _resume(run, warn)
        with run.metrics.open("a") as log:
            yield at, log


def _resume(run: Run, warn: Callable[[str], None]) -> Position:
    """The position of the newest undamaged checkpoint, or the start."""
    shapes = jax.eval_shape(lambda: init_members(run.config))
    loaded = load_state(run.checkpoints, shapes, warn)
    done, state = loaded if loaded else (0, _start(run.config))
    seconds, best = rewind_metrics(run, done, _sign(run.config), warn)
    return Position(done, state, seconds, max(best, best_score(run.best, done)))


def _start(config: Config) -> TrainState:
    body = load_body(config)
    return jax.jit(lambda: init_members(config, body))()


def _train_chunk(
    run_chunk: RunChunk, config: Config, data: Any, at: Position, size: int, tolerant: bool
) -> tuple[Position, np.ndarray]:
    """The position `size` iterations later, and the mean loss of each member on the way."""
    began = time.monotonic()
    new, chunk_losses = run_chunk(at.state, data, size)
    losses = np.asarray(chunk_losses)
    seconds = at.seconds + time.monotonic() - began
    state = _keep_finite(at.state, new, losses, config, at.done, tolerant)
    return Position(at.done + size, state, seconds, at.best), losses.mean(axis=1, dtype=np.float64)


def _keep_best(run: Run, at: Position, scores: np.ndarray) -> Position:
    """Save the meta-parameters if their validation score is the best so far."""
    score = _sign(run.config) * float(scores.mean())
    if not score > at.best:  # also if it is not a number
        return at
    save_state(run.best, at.done, at.state.theta, keep=1, score=score)
    return at._replace(best=score)


def _sign(config: Config) -> int:
    """Accuracy should rise, an error should fall."""
    return 1 if is_classification(config) else -1


def _is_over(at: Position, budget: float | None, deadline: float | None) -> bool:
    late = deadline is not None and at.done > 0 and time.monotonic() >= deadline
    return late or bool(budget and at.seconds >= budget)


def _is_due(done: int, size: int, every: int | None, last: int) -> bool:
    """Whether the chunk of `size` iterations that ends at `done` passed a multiple of `every`."""
    return every is not None and (done % every < size or done == last)


def write_metrics(log: Any, line: dict[str, Any]) -> None:
    """Append one JSON line; a number that is not finite becomes null."""

    def plain(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return [plain(float(x)) for x in value]
        return value if np.isfinite(value) else None

    log.write(json.dumps({name: plain(value) for name, value in line.items()}) + "\n")
    log.flush()


def _keep_finite(
    old: TrainState,
    new: TrainState,
    losses: np.ndarray,
    config: Config,
    done: int,
    tolerant: bool,
) -> TrainState:
    """The new state, or the old one for members with a loss or weight that is not finite."""
    finite = np.isfinite(losses).all(axis=1)
    for leaf in jax.tree.leaves(new.theta):
        finite &= np.isfinite(np.asarray(leaf).reshape(len(finite), -1)).all(axis=1)
    if finite.all():
        return new
    if not tolerant:
        member = int(np.argmin(finite))
        bad = ~np.isfinite(losses[member])
        at = done + (int(np.argmax(bad)) if bad.any() else len(bad))
        seed, alpha = config.members[member]
        raise Diverged(
            f"the loss of seed {seed} (alpha {alpha:g}) is not finite from iteration {at}: "
            "try a smaller --alpha or --beta, fewer --steps, or --first-order; "
            "the last checkpoint is from before it"
        )

    def select(a: Array, b: Array) -> Array:
        return jnp.where(jnp.asarray(finite).reshape((-1,) + (1,) * (a.ndim - 1)), b, a)

    return jax.tree.map(select, old, new)


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """Record SIGINT and SIGTERM, so that training stops between two chunks; a second SIGINT
    interrupts at once."""
    received: list[int] = []

    def record(number: int, _: Any) -> None:
        if received and number == signal.SIGINT:
            raise KeyboardInterrupt
        received.append(number)

    try:
        before = {s: signal.signal(s, record) for s in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread, which alone may set handlers
        before = {}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
