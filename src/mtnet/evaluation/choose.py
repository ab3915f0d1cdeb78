"""Settings of adaptation, chosen on validation tasks for networks that are trained already."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from mtnet.build import is_classification
from mtnet.config import Config
from mtnet.core.evaluate import over_seeds
from mtnet.core.types import MetaParams
from mtnet.evaluation.measure import compile_scores, finite

TASKS, SEED = 200, 0
"""Number of validation tasks, and their random seed."""

Grid = list[dict[str, Any]]
Settings = dict[str, Any]


def measure_grid(
    config: Config, theta: MetaParams, grid: Sequence[Settings], *, tasks: int = TASKS, **test: Any
) -> Grid:
    """Measure a trained run with several settings of adaptation, on the same validation tasks.

    Args:
        config: The run's config.
        theta: Meta-parameters, stacked over members.
        grid: Settings to try, each with `alpha` and `steps`.
        tasks: Number of tasks.
        test: Settings of the family to change (`queries=1`).

    Returns:
        The settings in their order, each with `validation`, the mean over tasks and members, and
        `ci95`.
    """
    members = [jax.tree.map(lambda a, m=m: a[m], theta) for m in range(len(config.members))]
    key, steps = jax.random.key(SEED), max(setting["steps"] for setting in grid)
    compiled: dict[str, Any] = {}
    scores: dict[str, np.ndarray] = {}
    measured: Grid = []
    for setting in grid:
        # alpha is traced, and one trajectory has every number of steps
        others = {k: v for k, v in setting.items() if k not in ("alpha", "steps")}
        program, trajectory = repr(others), repr(others | {"alpha": setting["alpha"]})
        if program not in compiled:
            changed = config.replace(**others)
            compiled[program] = compile_scores(
                changed, "validation", tasks=tasks, steps=steps, **test
            )
        if trajectory not in scores:
            score = compiled[program]
            scores[trajectory] = np.stack([score(m, setting["alpha"], key) for m in members])
        summary = over_seeds(scores[trajectory][:, :, setting["steps"]])
        measured.append(
            setting | {"validation": finite(summary.mean), "ci95": finite(summary.ci95)}
        )
    return measured


def best_settings(config: Config, measured: Grid) -> Settings:
    """The settings with the best validation score; the first of equals."""
    sign = 1 if is_classification(config) else -1  # accuracy should be high, an error low
    valid = [entry for entry in measured if entry["validation"] is not None]
    best = max(valid or measured[:1], key=lambda entry: sign * (entry["validation"] or 0.0))
    return {k: v for k, v in best.items() if k not in ("validation", "ci95")}
