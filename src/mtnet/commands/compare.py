"""`mtnet compare`."""

import json
import shlex
import sys
from pathlib import Path

import tyro
from rich.table import Table

from mtnet.commands.common import check_positive, console
from mtnet.config import to_dict
from mtnet.errors import InputError
from mtnet.evaluation.compare import compare as compare_runs, row
from mtnet.files import write_atomically
from mtnet.storage.run_folder import open_run
from mtnet.tasks import FAMILIES
from mtnet.version import __version__

PROTOCOL = {
    "tasks": "fresh ones, of test classes where there are classes; the same for every run",
    "network": "of a run with several seeds the first; its best state on validation tasks, "
    "or its last",
    "ci95": "1.96 standard errors over tasks; of a difference: over the tasks' differences",
    "p": "paired t-test over tasks, against the first run",
}


def compare(
    runs: tyro.conf.Positional[tuple[Path, ...]],
    tasks: int = 600,
    steps: int | None = None,
    queries: int | None = None,
    out: Path | None = None,
) -> None:
    """Measure trained runs on the same fresh tasks, with a paired test against the first.

    Args:
        runs: Two run directories or more, of the same kind of tasks.
        tasks: How many tasks.
        steps: Inner steps on each; left out: as many as each was trained with.
        queries: Query examples (of a class); left out: 1 picture, or 10 points of a curve.
        out: Write the numbers to this JSON file too.
    """
    if len(runs) < 2:
        raise InputError("give two run directories or more to compare")
    check_positive(tasks=tasks, queries=queries)
    if steps is not None and steps < 0:
        raise InputError(f"steps must be 0 or more; it is {steps}")
    opened = [open_run(run) for run in runs]
    pictures = FAMILIES[opened[0].config.family].images
    with console.status("Measuring"):
        found = compare_runs(
            opened, tasks=tasks, steps=steps, queries=queries or (1 if pictures else 10)
        )
    rows = [row(one) for one in found]
    shown = Table(title=f"{'Percent right' if pictures else 'Loss'} on the same {tasks} tasks")
    for column in ("run", "method", "iteration", "steps", "mean ± 95 %", "minus the first", "p"):
        left = column in ("run", "method")
        shown.add_column(column, justify="left" if left else "right", overflow="fold")
    for i, r in enumerate(rows):
        apart = "" if i == 0 else f"{r['difference']:+.3f} ± {r['difference_ci95']:.3f}"
        p = "" if r["p"] is None else f"{r['p']:.2g}"
        mean = f"{r['mean']:.3f} ± {r['ci95']:.3f}"
        numbers = map(str, (r["iteration"], r["steps"]))
        shown.add_row(r["run"], r["method"], *numbers, mean, apart, p)
    console.print(shown)
    if out is not None:
        written = {
            "experiment": out.stem,
            "mtnet_version": __version__,
            "command": shlex.join(["mtnet", *sys.argv[1:]]),
            "protocol": PROTOCOL,
            "trainings": {str(run.folder): to_dict(run.config) for run in opened},
            "rows": rows,
        }
        try:
            write_atomically(out, f"{json.dumps(written, indent=1)}\n".encode())
        except OSError as error:
            raise InputError(f"cannot write {out}: {error.strerror}") from None
