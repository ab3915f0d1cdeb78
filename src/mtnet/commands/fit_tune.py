"""`mtnet fit --tune`: try several settings, print what was tried, and prepare the best."""

import json
import tempfile
import time
from pathlib import Path
from typing import Any

from mtnet.build import is_classification
from mtnet.commands.common import console, plain_table
from mtnet.commands.fit_data import Prepared, Tuned, prepare_rows
from mtnet.commands.progress import progress_bar
from mtnet.config import Config
from mtnet.errors import InputError
from mtnet.evaluation.measure import finite
from mtnet.files import write_atomically
from mtnet.training import tune
from mtnet.training.budget import within_budget
from mtnet.userdata.dataset import write_dataset
from mtnet.userdata.schema import Schema
from mtnet.userdata.tables import TableTasks

TUNE_FILE = "tune.json"
ADDED = ("base", "waves")
"""Settings of the inputs; the others are those of the config."""


def tune_rows(
    table: TableTasks, config: Config, added: dict[str, Any], seconds: float | None
) -> Prepared:
    """The table with the inputs, and the settings, that are best on the validation groups.

    Args:
        table: The rows, without added inputs.
        config: The user's settings: the first candidate.
        added: The user's base and waves.
        seconds: Time for tuning; what is running then is completed. Default: no limit.
    """
    if not table.splits["validation"]:
        raise InputError("--tune needs validation groups: give 4 groups or more, or remove --tune")
    changes = _different(tune.candidates(config, numbers=not table.classes), added)
    inputs = {name: _inputs(added | change) for name, change in changes.items()}
    data, paths, configs = dict[Any, Prepared](), dict[Any, Path](), dict[str, Config]()
    with tempfile.TemporaryDirectory() as folder:
        for name, key in inputs.items():
            if key not in data:
                data[key] = rows = prepare_rows(table, **dict(key))
                paths[key] = Path(folder) / f"{len(paths)}.safetensors"
                write_dataset(paths[key], rows.rows, rows.names, rows.splits, **rows.about)
            configs[name] = config.replace(data=str(paths[key]), **_settings(changes[name]))
        trials = _try(configs, seconds)
    chosen = tune.best(trials).name
    _print(trials, chosen, table.schema, bool(table.classes))
    plain = [t._asdict() | changes[t.name] | {"score": finite(t.score)} for t in trials]
    return data[inputs[chosen]]._replace(tuned=Tuned(_settings(changes[chosen]), plain))


def _different(changes: dict[str, Any], added: dict[str, Any]) -> dict[str, Any]:
    """The candidates without those that equal an earlier one, given base and waves."""
    unique: dict[Any, tuple[str, Any]] = {}
    for name, change in changes.items():
        unique.setdefault(tuple(sorted((added | change).items())), (name, change))
    return dict(unique.values())


def _inputs(settings: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple((name, settings[name]) for name in ADDED)


def _settings(change: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in change.items() if name not in ADDED}


def _try(configs: dict[str, Config], seconds: float | None) -> list[tune.Trial]:
    """Train the candidates, with a bar."""
    began, first = time.monotonic(), next(iter(configs.values()))
    sign = 1 if is_classification(first) else -1
    planned = first if seconds is None else within_budget(first, seconds)
    rungs = tune.rungs(planned.outer.iterations)
    score, done = tune.train_and_score(configs, rungs[0], sign), 0
    with progress_bar(f"Tuning: {len(configs)} candidates", console) as progress:

        def count(name: str, iterations: int) -> float:
            nonlocal done
            value, done = score(name, iterations), done + 1
            progress(done, len(configs) + len(configs) // 2 + 1)
            return value

        def is_over() -> bool:
            return seconds is not None and time.monotonic() > began + seconds

        return tune.successive_halving(list(configs), count, rungs, is_over)


def _print(trials: list[tune.Trial], chosen: str, schema: Schema, classes: bool) -> None:
    """One line per candidate, the best and longest trained first."""
    what = "accuracy (%)" if classes else "error"
    columns = ("iterations", f"validation {what}")
    shown, seen = plain_table("candidate", *columns, right=columns), set[str]()
    for trial in sorted(tune.ranked(trials), key=lambda t: -t.iterations):
        if trial.name not in seen:
            value = trial.score if classes else schema.target.spread * (-trial.score) ** 0.5
            shown.add_row(trial.name, str(trial.iterations), f"{value:.4g}")
            seen.add(trial.name)
    console.print(shown, highlight=False)
    console.print(f"Chosen: {chosen}", highlight=False)


def write_trials(folder: Path, tuned: Tuned) -> None:
    """Write what was tried to the run folder."""
    text = json.dumps({"chosen": tuned.settings, "trials": tuned.trials}, indent=1)
    write_atomically(folder / TUNE_FILE, f"{text}\n".encode())
