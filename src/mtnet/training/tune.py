"""Settings of a table's training, chosen on validation tasks by successive halving.

All candidates are trained for a short time, the better half for longer. The first candidate, the
user's own settings, is kept to the end, so that the choice is never worse than it.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from mtnet.build import init_members, load_data
from mtnet.config import Config
from mtnet.methods import METHODS
from mtnet.training.compiled import compile_chunk
from mtnet.training.validation import compile_validation

SHORT, LONGER = 40, 4
"""Candidates are trained for one 40th of the iterations, the better half for 4 times as long."""

Settings = dict[str, Any]
Score = Callable[[str, int], float]
"""`(name, iterations) -> score`, a higher one is better."""


class Trial(NamedTuple):
    """A candidate after some iterations."""

    name: str
    iterations: int
    score: float


def candidates(config: Config, numbers: bool) -> dict[str, Settings]:
    """Changes of the settings by name; the first is none. A base needs a target of numbers."""
    alpha, width, steps = config.inner.alpha, config.net.width, config.inner.steps
    base: Settings = {"base": "boosting"}
    every: list[Settings] = [
        {},
        base,
        {"waves": 3},
        {"alpha": 3 * alpha},
        base | {"waves": 3},
        {"waves": 3, "width": 2 * width},
        {"width": 2 * width},
        {"steps": max(1, steps // 2), "alpha": 2 * alpha},
        base | {"alpha": 3 * alpha},
    ]
    unused = {"alpha", "steps"} if not METHODS[config.method].steps else set()
    unused |= set() if numbers else {"base"}
    return {describe(c): c for c in every if not unused & c.keys()}


def describe(changes: Settings) -> str:
    texts = [f"{name} {v:g}" if name != "base" else f"base {v}" for name, v in changes.items()]
    return ", ".join(texts) or "as given"


def rungs(iterations: int) -> list[int]:
    """After how many iterations candidates are compared."""
    short = max(1, iterations // SHORT)
    return [short, LONGER * short]


def successive_halving(
    names: Sequence[str],
    score: Score,
    rungs: Sequence[int],
    is_over: Callable[[], bool] = lambda: False,
) -> list[Trial]:
    """Score all names at the first rung, the better half at the next, and so on.

    Args:
        names: Candidates; the first is never dropped.
        score: The score of a candidate; one that is not a number is the worst.
        rungs: Increasing numbers of iterations.
        is_over: Whether the time is over. A rung that is not complete then does not count, except
            the first one.

    Returns:
        What was tried, in order; `best` is the choice.
    """
    left, trials = list(names), list[Trial]()
    for iterations in rungs:
        now: list[Trial] = []
        for name in left:
            if (trials or now) and is_over():
                return trials or now
            now.append(Trial(name, iterations, score(name, iterations)))
        trials += now
        kept = [trial.name for trial in ranked(now)[: max(1, len(now) // 2)]]
        left = [name for name in left if name in kept or name == names[0]]
    return trials


def ranked(trials: Sequence[Trial]) -> list[Trial]:
    """The best first; of equals, the earlier."""
    value = lambda t: t.score if np.isfinite(t.score) else -np.inf  # noqa: E731
    return sorted(trials, key=value, reverse=True)


def best(trials: Sequence[Trial]) -> Trial:
    """The best of those that were trained longest."""
    longest = max(trial.iterations for trial in trials)
    return ranked([trial for trial in trials if trial.iterations == longest])[0]


def train_and_score(configs: dict[str, Config], size: int, sign: int) -> Score:
    """Train each candidate on from where it was, with a constant step size, and validate it.

    Args:
        configs: The candidates.
        size: Iterations of one chunk; candidates are scored after multiples of it.
        sign: 1 if the metric should be high (accuracy), -1 if low (an error).
    """
    at: dict[str, tuple[int, Any]] = {}
    programs: dict[str, Any] = {}

    def score(name: str, iterations: int) -> float:
        config = configs[name].replace(schedule="constant", validate_every=1)
        if name not in at:
            at[name] = 0, jax.jit(lambda: init_members(config))()
            programs[name] = compile_chunk(config), load_data(config), compile_validation(config)
        run_chunk, data, validate = programs[name]
        done, state = at[name]
        for _ in range(done, iterations, size):
            state, _ = run_chunk(state, data, size)
        at[name] = iterations, state
        return sign * float(validate(state).mean())

    return score
