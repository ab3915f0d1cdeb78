"""Adapt a network to every task, and write one file."""

from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from mtnet.adapted import adapt_model
from mtnet.adapted_tasks import TaskModels, TaskSupport, adapt_tasks
from mtnet.commands.common import console, warn
from mtnet.core.types import Batch, MetaParams
from mtnet.errors import InputError
from mtnet.evaluation.calibration import Adapted, run_calibration, with_calibration
from mtnet.files import Arrays, arrays_of
from mtnet.methods import METHODS
from mtnet.storage import models
from mtnet.storage.run_folder import Run
from mtnet.storage.supports import support_arrays, support_header
from mtnet.storage.task_models import save_task_models
from mtnet.tasks.episodes import as_floats
from mtnet.userdata.new_tasks import Support
from mtnet.userdata.support_sets import check_two_classes, in_order


class Start(NamedTuple):
    """What a task is adapted from."""

    run: Run
    theta: MetaParams
    about: dict[str, Any]
    """What a model must know of its inputs and of its run."""
    compact: bool


def write_adapted(
    path: Path, start: Start, supports: list[Support], source: str, store: bool
) -> None:
    """Adapt to every task, write one file, and say so."""
    for support in supports:
        check_two_classes(support, source)
    supports = [in_order(support) for support in supports]
    about = start.about | ({"examples": support_header(supports)} if store else {})
    arrays = support_arrays(supports) if store else {}
    start, count = start._replace(about=about), len(supports)
    if count > 1:
        if start.compact:
            raise InputError(f"{source} has {count} tasks: --compact is for one")
        save_task_models(
            path, calibrated(start, adapt_many_tasks(start, supports), supports), arrays
        )
    else:
        adapt_one_task(path, start, supports[0], arrays)
    examples = sum(len(s.y) for s in supports)
    what = f"{count} tasks, " if count > 1 else ""
    console.print(
        f"Wrote {path}: {start.run.config.method} adapted to {what}{examples} examples, "
        f"{path.stat().st_size / 1000:.1f} kB",
        highlight=False,
    )
    console.print(f"Next: mtnet predict {path} ...", highlight=False, soft_wrap=True)


def adapt_one_task(path: Path, start: Start, support: Support, arrays: Arrays) -> None:
    """Write the model of one task."""
    config, theta = start.run.config, start.theta
    if start.compact:
        config = config.replace(at_test="sample")
    ways = len(support.labels) if support.labels and config.any_ways else None
    if config.family == "images" and ways is None and len(support.labels) != config.tasks.ways:
        raise InputError(
            f"the examples have {len(support.labels)} classes; this run needs {config.tasks.ways}"
        )
    about = start.about | {"labels": list(support.labels), "task": support.task}
    model = adapt_model(config, theta, as_batch(support), ways, **about)
    check_finite(arrays_of(model.net), "the examples")
    sampled = start.compact and not METHODS[config.method].embeds
    if not sampled:  # sampled masks are not those of the calibration
        model = calibrated(start, model, [support])
    if start.compact:
        models.save_compact_model(path, model, config, theta, arrays)
    else:
        models.save_model(path, model, arrays)


def adapt_many_tasks(start: Start, supports: list[Support]) -> TaskModels:
    adapted = adapt_tasks(start.run.config, start.theta, by_task(supports), **start.about)
    for task, (stack, place) in adapted.tasks.items():
        check_finite({k: a[place] for k, a in adapted.arrays[stack].items()}, f"task {task!r}")
    return adapted


def calibrated(start: Start, adapted: Adapted, supports: list[Support]) -> Adapted:
    """The same models with the intervals or the temperature of their run."""
    calibration = run_calibration(start.run, start.theta, warn)
    return with_calibration(adapted, by_task(supports), calibration)


def by_task(supports: list[Support]) -> dict[str, TaskSupport]:
    """Support sets by the name of their task; "" for a task without a name."""
    return {s.task or "": TaskSupport(s.x, s.y, s.labels) for s in supports}


def check_finite(arrays: Arrays, what: str) -> None:
    """Raise an InputError if adapting has diverged."""
    if not all(np.isfinite(a).all() for a in arrays.values()):
        raise InputError(
            f"adapting to {what} diverged (weights are not finite): check for extreme values, or "
            "fit with a smaller --alpha"
        )


def as_batch(support: Support) -> Batch:
    """The examples as a network takes them."""
    x = jnp.asarray(support.x)
    return Batch(as_floats(x) if x.dtype == jnp.uint8 else x, jnp.asarray(support.y))
