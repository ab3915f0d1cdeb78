"""`mtnet compare`: several runs on the same tasks."""

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from mtnet.commands.common import check_not_negative, check_positive, console
from mtnet.commands.parse import OptionalInt, OptionalPath, RunFolders, run as run_command
from mtnet.config import to_dict
from mtnet.errors import InputError
from mtnet.evaluation.compare import compare as compare_runs, row
from mtnet.evaluation.units import metric_name
from mtnet.files import write_atomically
from mtnet.revision import git_commit
from mtnet.storage.run_folder import Run, open_run
from mtnet.tasks import FAMILIES
from mtnet.version import __version__

PROTOCOL = {
    "tasks": "new tasks, of test classes if the data have classes; the same for every run",
    "network": "the first seed of a run; its best state on validation tasks, or its last",
    "ci95": "1.96 standard errors over tasks; for a difference: over the differences by task",
    "p": "paired t-test over tasks, against the first run",
}


def main(arguments: Sequence[str]) -> None:
    run_command(compare, "compare", arguments)


def compare(
    runs: RunFolders,
    tasks: int = 600,
    steps: OptionalInt = None,
    queries: OptionalInt = None,
    out: OptionalPath = None,
) -> None:
    """Measure runs on the same new tasks, with a paired test against the first.

    Args:
        runs: Two or more run folders, trained on the same kind of tasks.
        tasks: Number of tasks.
        steps: Inner steps per task. Default: as many as each run was trained with.
        queries: Query examples (per class). Default: 1 for images, 10 otherwise.
        out: Also write the numbers to this JSON file.
    """
    if len(runs) < 2:
        raise InputError("give at least two run folders to compare")
    check_positive(tasks=tasks, queries=queries)
    check_not_negative(steps=steps)
    trained = [open_run(run) for run in runs]
    images = FAMILIES[trained[0].config.family].images
    with console.status("Measuring"):
        compared = compare_runs(
            trained, tasks=tasks, steps=steps, queries=queries or (1 if images else 10)
        )
    rows = [row(one) for one in compared]
    metric = metric_name(trained[0].config)
    for i, r in enumerate(rows, 1):
        line = f"run {i}: {r['run']}, {r['method']}, iteration {r['iteration']}"
        console.print(line, highlight=False, soft_wrap=True)
    console.print(comparison_table(rows, f"{metric} on the same {tasks} tasks"))
    if out is not None:
        write_comparison(out, trained, rows)


def comparison_table(rows: list[dict[str, Any]], title: str) -> Table:
    """One row per run, numbered from 1."""
    table = Table(title=title)
    for column in ("run", "steps", "mean ± 95 %", "minus run 1 ± 95 %", "p"):
        table.add_column(column, justify="right", no_wrap=True)
    for i, r in enumerate(rows, 1):
        difference = "" if i == 1 else f"{r['difference']:+.3f} ± {r['difference_ci95']:.3f}"
        p = "" if r["p"] is None else f"{r['p']:.2g}"
        table.add_row(str(i), str(r["steps"]), f"{r['mean']:.3f} ± {r['ci95']:.3f}", difference, p)
    return table


def write_comparison(path: Path, runs: list[Run], rows: list[dict[str, Any]]) -> None:
    results = {
        "experiment": path.stem,
        "mtnet_version": __version__,
        "commit": git_commit(),
        "command": shlex.join(["mtnet", *sys.argv[1:]]),
        "protocol": PROTOCOL,
        "trainings": {str(run.folder): to_dict(run.config) for run in runs},
        "rows": rows,
    }
    try:
        write_atomically(path, f"{json.dumps(results, indent=1)}\n".encode())
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None
