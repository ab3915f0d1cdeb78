"""The page at the end of `mtnet fit`: figures first, then what to do next, tables last."""

import shlex
from pathlib import Path
from typing import Any

import jax
import numpy as np

from mtnet.adapted import run_cell_summaries
from mtnet.build import is_classification
from mtnet.check_data import read_json
from mtnet.commands.common import console, warn
from mtnet.commands.fit_calibration import LEVEL
from mtnet.commands.fit_report import BASELINES_FILE, number, signed
from mtnet.commands.progress import busy
from mtnet.core.types import MetaParams
from mtnet.errors import InputError
from mtnet.evaluation.calibration import run_calibration
from mtnet.evaluation.units import target_unit
from mtnet.files import write_atomically
from mtnet.methods import METHODS
from mtnet.report import html
from mtnet.report.held_out import draw_classes, draw_groups, draw_numbers
from mtnet.report.image_tasks import image_tasks
from mtnet.report.training import training_figures
from mtnet.storage.calibration import task_half_width
from mtnet.storage.run_folder import Run, load_best, read_metrics
from mtnet.tasks.groups import select_groups
from mtnet.userdata import schema as schemas
from mtnet.userdata.dataset import load_split, open_dataset

PAGE_FILE = "report.html"
SHOWN = 4
"""Held-out groups that are drawn."""
ROWS: dict[str, Any] = {"rows": [{}], "metric": str}
NOT_FINITE = (
    "not finite: on at least one task the predictions overflowed, so that there is no mean. Train "
    "with a smaller --alpha or fewer --steps, or look for extreme values in the data."
)
WHAT_CHANGES = (
    "Adapting to a task moves the weights of each layer, row by row. Every row has a learned "
    "probability of being updated; by default its step is multiplied by this probability. A layer "
    "with higher probabilities, more directions or larger steps depends more on the task."
)


def write_page(run: Run, summary: str | None) -> Path:
    """Write the page of a run; returns its path.

    Args:
        run: The run.
        summary: The result on held-out tasks, if some were held out.
    """
    path = run.folder / PAGE_FILE
    with busy("Drawing the page", console):
        text = html.page(f"mtnet fit: {run.folder.name}", page_parts(run, summary))
    try:
        write_atomically(path, text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None
    return path


def page_parts(run: Run, summary: str | None) -> list[str]:
    iteration, stacked = load_best(run)
    theta = jax.tree.map(lambda a: a[0], stacked)
    about = open_dataset(run.config.tasks.data).about
    curves = training_figures(read_metrics(run), target_unit(run.config), iteration)
    none = "No groups were held out: there were too few to measure the result on new tasks."
    return [
        html.paragraph(summary or none),
        *held_out(run, theta, about),
        html.heading("Training"),
        html.gallery([html.figure(*curve, dpi=150) for curve in curves]),
        *baselines(run),
        html.heading("What a new task may change"),
        *changes(run, theta),
        html.heading("Next"),
        html.pre("\n".join(commands(run, about))),
        *columns(about),
        *splits(about),
    ]


def held_out(run: Run, theta: MetaParams, about: dict[str, Any]) -> list[str]:
    """A few tasks that training never saw."""
    config, names = run.config, about["splits"]["test"]
    if not names:
        return []
    calibration = run_calibration(run, theta, warn)
    temperature = calibration.temperature or 1.0
    rows = jax.tree.map(np.asarray, load_split(config.tasks.data, "test"))
    if config.family == "images":
        text = (
            "The first image of a line is a support image of its class. Then come query images "
            "with their predicted class and its probability: green is right, red is wrong."
        )
        sheets = image_tasks(config, theta, rows, names, temperature)
        figures = [
            html.figure(figure, f"Held-out task {i}: {right} of {count} right.", dpi=150)
            for i, (figure, right, count) in enumerate(sheets, 1)
        ]
        return [html.heading("Held-out classes"), html.paragraph(text), html.gallery(figures)]
    names, schema = names[:SHOWN], schemas.from_plain(about["schema"])
    drawn = draw_groups(config, theta, select_groups(rows, list(range(len(names)))), names, schema)
    shots = f"Each group is adapted to {config.tasks.shots} of its rows (support)"
    if is_classification(config):
        figures = [
            html.figure(draw_classes(task, temperature), task.name, dpi=150) for task in drawn
        ]
        text = f"{shots} and tested on others (query): the probability of each row's right class."
    else:
        half = [task_half_width(calibration.intervals, t.residuals, LEVEL) for t in drawn]
        plots = [draw_numbers(t, schema, h) for t, h in zip(drawn, half, strict=True)]
        figures = [html.figure(p, t.name, dpi=150) for p, t in zip(plots, drawn, strict=True)]
        text = f"{shots} and tested on others (query)."
        text += " The dashed curve or open points are predictions before adaptation."
        if any(half):
            text += f" Bands are prediction intervals of level {LEVEL:g}."
    return [html.heading("Held-out groups"), html.paragraph(text), html.gallery(figures)]


def baselines(run: Run) -> list[str]:
    """The table of baselines, if they were measured."""
    path = run.folder / BASELINES_FILE
    if not path.exists():
        return []
    measured = read_json(path, ROWS, "write it again with mtnet fit")
    rows, first = measured["rows"], measured["rows"][0]
    lines = [
        [
            row["method"],
            number(row["mean"]),
            "" if row is first else signed(row["difference"], row["difference_ci95"]),
        ]
        for row in rows
    ]
    header = ["method", measured["metric"], f"minus {first['method']} ± 95 %"]
    better = [row["method"] for row in rows if row["better"]]
    verdict = (
        f"Better than {first['method']} on these tasks: {', '.join(better)}."
        if better
        else f"No baseline is better than {first['method']} on these tasks."
    )
    parts = [html.heading("Baselines on the same tasks"), html.table(header, lines)]
    parts += [html.paragraph(verdict)] if len(rows) > 1 else []
    if any("not finite" in cell for line in lines for cell in line):
        parts.append(html.paragraph(NOT_FINITE))
    return parts


def changes(run: Run, theta: MetaParams) -> list[str]:
    """What adapting to a task changes."""
    method = METHODS[run.config.method]
    if method.embeds:
        return [html.paragraph(f"A task changes no weights; a model adds {method.adapts}.")]
    return [html.paragraph(WHAT_CHANGES), html.bullets(layers(run, theta))]


def layers(run: Run, theta: MetaParams) -> list[str]:
    """One sentence per layer, from the numbers of `mtnet inspect`."""
    texts = []
    for name, cell in run_cell_summaries(run.config, theta).items():
        share = 100 * cell.updated / cell.rows
        texts.append(
            f"{name}: {cell.rows} row{'' if cell.rows == 1 else 's'}, updated with a probability "
            f"of {share:.0f} % on average, in {cell.rank} independent "
            f"direction{'' if cell.rank == 1 else 's'}, with a mean step size of {cell.step:.3g}."
        )
    return texts


def commands(run: Run, about: dict[str, Any]) -> list[str]:
    """What to type next."""
    folder = shlex.quote(str(run.folder))
    if run.config.family == "images":
        use = [f"mtnet adapt {folder} FOLDER --out MODEL     # one folder of images per new class"]
        use += ["mtnet predict MODEL IMAGES", "mtnet adapt --update MODEL MORE_IMAGES"]
    else:
        schema = about["schema"]
        names = [schema["task"], *(c["name"] for c in schema["inputs"]), schema["target"]["name"]]
        use = [f"mtnet adapt {folder} ROWS.csv --out MODEL   # columns: {', '.join(names)}"]
        use += ["mtnet predict MODEL TABLE.csv --out ANSWERS.csv"]
        use += ["mtnet adapt --update MODEL MORE_ROWS.csv"]
    return [*use, f"mtnet inspect {folder}", f"mtnet evaluate {folder}"]


def columns(about: dict[str, Any]) -> list[str]:
    """How the columns of the table were read."""
    if "columns" not in about:
        return []
    header = ["column", "used as", "read as", "missing"]
    return [html.heading("How columns were read"), html.table(header, about["columns"], texts=True)]


def splits(about: dict[str, Any]) -> list[str]:
    """The names of what was held out, and the number of the others."""
    held = about["splits"]
    lines = [[split, str(len(names)), some(names)] for split, names in held.items()]
    return [html.heading("Splits"), html.table(["split", "size", "names"], lines, texts=True)]


def some(names: list[str], most: int = 20) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
