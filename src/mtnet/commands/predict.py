"""`mtnet predict`: predictions of an adapted model."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from mtnet.adapted import Model
from mtnet.commands.common import console, plain_table, save_figure, warn
from mtnet.commands.parse import OptionalPath, run as run_command
from mtnet.core.adapt import predict_compiled
from mtnet.errors import InputError
from mtnet.report.cells import contact_sheet
from mtnet.storage import models
from mtnet.tasks.episodes import as_floats
from mtnet.userdata import image_folder, schema as schemas, table_files
from mtnet.userdata.tables import read_inputs


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
) -> None:
    """Predict with an adapted model.

    Args:
        model: Model written by mtnet adapt.
        inputs: A CSV or Parquet file, or images.
        out: CSV or Parquet file for the predictions. Default: print them.
        sheet: Contact sheet of the images. Default: predictions.png, or none with --out.
        run: Run folder of a compact model, if it was moved.
    """
    if not inputs:
        raise InputError("give a table or images to predict for")
    loaded = models.load_model(model, run)
    table = loaded.about["kind"] == "table"
    wanted = "one table, CSV or Parquet" if table else "images"
    for path in inputs:
        if path.is_dir() or table_files.is_table(path) != table or (table and len(inputs) > 1):
            raise InputError(f"{model} predicts for {wanted}, not for {path}")
    if table:
        predict_rows(loaded, inputs[0], out)
    else:
        predict_images(loaded, list(inputs), out, sheet)


def predict_rows(model: Model, path: Path, out: Path | None) -> None:
    """The table with a column of predictions added."""
    schema = schemas.from_plain(model.about["schema"])
    table, x = read_inputs(schema, path, warn)
    outputs = np.asarray(predict_compiled(model.net, jnp.asarray(x)))
    name, labels = schema.target.name, model.about["labels"]
    columns = {c: table[c].to_numpy(zero_copy_only=False) for c in table.column_names}
    if labels:
        p = np.asarray(jax.nn.softmax(jnp.asarray(outputs)))
        columns[f"predicted {name}"] = np.array(labels)[p.argmax(1)]
        columns["probability"] = p.max(1)
    else:
        predicted = schemas.decode(schema.target, outputs[:, 0])
        columns[f"predicted {name}"] = predicted.astype(np.float32)
    if out is None:
        sys.stdout.buffer.write(table_files.as_csv(columns))
        sys.stdout.flush()
    else:
        table_files.write_table(out, columns)
        console.print(f"Wrote {len(x)} predictions to {out}", highlight=False)


def predict_images(model: Model, paths: list[Path], out: Path | None, sheet: Path | None) -> None:
    """A table of images, labels and probabilities, and a contact sheet."""
    pixels = image_folder.read_images(paths, model.about["size"], model.about["colour"])
    p = np.asarray(jax.nn.softmax(predict_compiled(model.net, as_floats(jnp.asarray(pixels)))))
    labels, probabilities = np.array(model.about["labels"])[p.argmax(1)], p.max(1)
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
        save_figure(contact_sheet(pixels, labels.tolist(), probabilities.tolist()), sheet)
        console.print(f"Contact sheet: {sheet}", highlight=False)
