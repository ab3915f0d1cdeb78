"""From the data of `mtnet fit` to its run: write them, train, measure, and write the page."""

import time
from collections.abc import Callable
from pathlib import Path

from mtnet.commands.board import check_tensorboard
from mtnet.commands.common import console
from mtnet.commands.fit_data import Prepared
from mtnet.commands.fit_page import write_page
from mtnet.commands.fit_report import report
from mtnet.commands.fit_tune import write_trials
from mtnet.commands.train import free_folder, plan_iterations, train_with_bars
from mtnet.config import Config
from mtnet.errors import InputError
from mtnet.storage.run_folder import check_free, create_run
from mtnet.training.launch import Launch
from mtnet.userdata.dataset import DATASET_FILE, write_dataset

TRAINING = 0.85
"""Part of --budget after which training ends."""


def prepare_and_train(
    prepare: Callable[[], Prepared],
    config: Config,
    out: Path | None,
    baselines: bool,
    budget: float | None,
    together: Launch | None = None,
    tensorboard: bool = False,
) -> None:
    """Read the data, write them to the run folder, train there, and report."""
    began = time.monotonic()
    check_tensorboard(tensorboard)
    folder = out or free_folder(Path("runs"), config)
    check_free(folder, config)
    data = prepare()
    config = config.replace(**data.tuned.settings) if data.tuned else config
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write to {folder}: {error.strerror}") from None
    path = folder / DATASET_FILE
    write_dataset(path, data.rows, data.names, data.splits, **data.about)
    planned = with_data(config, path, data.splits)
    deadline = None if budget is None else began + TRAINING * budget
    if deadline is not None:
        seconds = deadline - time.monotonic()
        planned = plan_iterations(planned, seconds, together, whole=True)
        planned = with_data(config.replace(iterations=planned.outer.iterations), path, data.splits)
    run = create_run(folder, planned)
    if data.tuned:
        write_trials(folder, data.tuned)
    train_with_bars(run, together, tensorboard=tensorboard, deadline=deadline)
    summary = report(run, baselines, None if budget is None else began + budget)
    page = write_page(run, summary)
    examples = "FILE" if config.family == "table" else "FOLDER"
    console.print(f"Page: {page}", highlight=False, soft_wrap=True)
    console.print(f"Next: mtnet adapt {run.folder} {examples} --out MODEL", highlight=False)


def with_data(config: Config, path: Path, splits: dict[str, list[int]]) -> Config:
    """Short trainings validate more often; without held-out groups there is no validation."""
    iterations, outer = config.outer.iterations, config.outer
    log = min(outer.log_every, max(1, iterations // 10))
    validate = None
    if splits["validation"]:
        validate = min(outer.validate_every or log, max(log, iterations // 10))
    return config.replace(data=str(path), validate_every=validate, log_every=log)
