"""`mtnet predict`: predictions of an adapted model."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import tyro

from mtnet.commands.common import console, plain_table, save_figure, warn
from mtnet.commands.parse import OptionalFloat, OptionalPath, run as run_command
from mtnet.core.conformal import check_level
from mtnet.errors import InputError
from mtnet.plain.apply import softmax
from mtnet.storage.calibration import half_widths
from mtnet.storage.predictors import Predictors, load_predictors
from mtnet.userdata import image_folder, schema as schemas, table_files
from mtnet.userdata.new_tasks import Inputs, read_inputs, some
from mtnet.userdata.pixels import read_pixels


def main(arguments: Sequence[str]) -> None:
    run_command(predict, "predict", arguments)


def predict(
    model: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")],
    inputs: Annotated[
        tuple[Path, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="TABLE|IMAGE ...", help_behavior_hint="(required)"),
    ],
    out: OptionalPath = None,
    sheet: OptionalPath = None,
    run: OptionalPath = None,
    interval: OptionalFloat = None,
) -> None:
    """Predict with an adapted model.

    Args:
        model: Model written by mtnet adapt.
        inputs: A table (CSV, TSV or Parquet), or images.
        out: CSV, TSV or Parquet file for the predictions. Default: print them.
        sheet: Contact sheet of the images. Default: predictions.png, or none with --out.
        run: Run folder of a compact model, if it was moved.
        interval: Add prediction intervals of this level, such as 0.9, for numbers.
    """
    if not inputs:
        raise InputError("give a table or images to predict for")
    loaded = load_predictors(model, run)
    table = loaded.about["kind"] == "table"
    wanted = "one table: CSV, TSV or Parquet" if table else "images"
    for path in inputs:
        if path.is_dir() or table_files.is_table(path) != table or (table and len(inputs) > 1):
            raise InputError(f"{model} predicts for {wanted}, not for {path}")
    if loaded.many or table:
        predict_rows(loaded, inputs[0], out, interval, str(model))
    elif interval is not None:
        raise InputError(f"--interval is for numbers; {model} predicts classes: remove it")
    else:
        predict_images(loaded, list(inputs), out, sheet)


def predict_rows(
    model: Predictors, path: Path, out: Path | None, level: float | None, source: str
) -> None:
    """The table with a column of predictions added; blank where inputs are missing and refused."""
    schema = schemas.from_plain(model.about["schema"])
    if level is not None:
        check_intervals(model, schema, level, source)
    inputs = read_inputs(schema, path, warn)
    rows = np.arange(len(inputs.x))
    blank = int((~inputs.complete).sum())
    if blank:
        rows = rows if schema.missing == "mean" else np.flatnonzero(inputs.complete)
        what = "their means are used" if schema.missing == "mean" else "not predicted"
        warn(f"{path}: {blank} of {len(inputs.x)} rows have missing inputs: {what}")
    outputs, labels = row_outputs(model, inputs, rows, path)
    for row, values in zip(rows, outputs, strict=True):
        if not np.isfinite(values).all():
            raise InputError(
                f"{path}, row {row + 1}: the prediction is not finite: check its inputs"
            )
    name, table = f"predicted {schema.target.name}", inputs.table
    if schema.target.levels is None:
        scaled = np.array([values[0] for values in outputs])
        numbers = schemas.decode(schema.target, scaled).astype(np.float32)
        table = with_column(table, name, rows, numbers.tolist(), pa.float32())
        if level is not None:
            tasks = row_tasks(model, inputs, rows)
            half = half_widths(model.about["intervals"], tasks, level, source, warn)
            for end, ends in (("lower", scaled - half), ("upper", scaled + half)):
                values = schemas.decode(schema.target, ends).astype(np.float32).tolist()
                column = f"{end} {schema.target.name}"
                table = with_column(table, column, rows, values, pa.float32())
    else:
        t = model.about.get("temperature", 1.0)
        p = [softmax(values / t) for values in outputs]
        best = [names[int(v.argmax())] for names, v in zip(labels, p, strict=True)]
        table = with_column(table, name, rows, best, pa.string())
        table = with_column(table, "probability", rows, [float(v.max()) for v in p], pa.float32())
    if out is None:
        sys.stdout.buffer.write(table_files.as_csv(table))
        sys.stdout.flush()
    else:
        table_files.write_table(out, table)
        console.print(f"Wrote {len(rows)} predictions to {out}", highlight=False)


def check_intervals(model: Predictors, schema: schemas.Schema, level: float, source: str) -> None:
    """Raise an InputError if the model has no intervals of this level."""
    check_level(level)
    if schema.target.levels is not None:
        raise InputError(f"--interval is for numbers; {source} predicts classes: remove it")
    if "intervals" not in model.about:
        raise InputError(
            f"{source} has no intervals: write it again with mtnet adapt, without --compact, from "
            "a fit of 10 groups or more"
        )


def row_tasks(model: Predictors, inputs: Inputs, rows: np.ndarray) -> list[str]:
    """The task of the model of each row; "" if it has no name."""
    if not model.many:
        return list(model.tasks) * len(rows)
    return [(inputs.tasks or [])[row] for row in rows]


def row_outputs(
    model: Predictors, inputs: Inputs, rows: np.ndarray, path: Path
) -> tuple[list[np.ndarray], list[list[str]]]:
    """Outputs of these rows by their task's network, and the names of each row's classes."""
    if not model.many:
        (task,), own = model.tasks, inputs.tasks
        new = sorted(set(own or ()) - {task})
        if task and new:
            warn(f"{path}: rows of {some(new)} are predicted as {task!r}")
    else:
        check_tasks(model, inputs, path)
    tasks = np.array(row_tasks(model, inputs, rows), object)
    outputs: list[np.ndarray] = [np.zeros(0)] * len(rows)
    for task in dict.fromkeys(tasks.tolist()):
        own_rows = np.flatnonzero(tasks == task)
        values = model.tasks[task].outputs(inputs.x[rows[own_rows]])
        for row, value in zip(own_rows, values, strict=True):
            outputs[row] = value
    return outputs, [model.tasks[task].labels for task in tasks]


def check_tasks(model: Predictors, inputs: Inputs, path: Path) -> None:
    """Raise an InputError if a row is of no task that the file has a model of."""
    column = model.about["schema"]["task"]
    if inputs.tasks is None:
        raise InputError(f"{path} has no column {column!r}, which says whose model to use: add it")
    new = sorted(set(inputs.tasks) - set(model.tasks))
    if new:
        raise InputError(
            f"{path}: the model file has no {column} {some(new)}: adapt to it first, or remove its "
            "rows"
        )


def with_column(
    table: pa.Table, name: str, rows: np.ndarray, values: list[Any], kind: pa.DataType
) -> pa.Table:
    """The table with one more column, blank except in these rows."""
    column: list[Any] = [None] * table.num_rows
    for row, value in zip(rows, values, strict=True):
        column[row] = value
    if name in table.column_names:
        table = table.drop_columns([name])
    return table.append_column(name, pa.array(column, kind))


def predict_images(
    model: Predictors, paths: list[Path], out: Path | None, sheet: Path | None
) -> None:
    """A table of images, labels and probabilities, and a contact sheet."""
    pixels = read_pixels(paths, model.about)
    x = image_folder.as_inputs(pixels)
    (predictor,) = model.tasks.values()
    p = softmax(predictor.outputs(x) / model.about.get("temperature", 1.0))
    labels, probabilities = np.array(predictor.labels)[p.argmax(1)], p.max(1)
    names = [str(path) for path in paths]
    if out is None:
        table = plain_table("image", "label", "probability", right=("probability",))
        for name, label, probability in zip(names, labels, probabilities, strict=True):
            table.add_row(name, label, f"{probability:.3f}")
        console.print(table)
    else:
        columns = {"image": np.array(names), "label": labels, "probability": probabilities}
        table_files.write_table(out, columns)
        console.print(f"Wrote {len(paths)} predictions to {out}", highlight=False)
    sheet = sheet or (Path("predictions.png") if out is None else None)
    if sheet is not None:
        from mtnet.report.contact_sheet import contact_sheet  # Matplotlib takes long to import

        shown = 255 - pixels if model.about["invert"] else pixels  # as in the files
        save_figure(contact_sheet(shown, labels.tolist(), probabilities.tolist()), sheet)
        console.print(f"Contact sheet: {sheet}", highlight=False)
