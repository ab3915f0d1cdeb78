"""`mtnet predict`: predictions of an adapted model."""

import sys
from pathlib import Path
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from rich.table import Table

from mtnet.adapted import Model
from mtnet.commands.common import console, warn
from mtnet.core.adapt import predict_compiled
from mtnet.errors import InputError
from mtnet.report.cells import contact_sheet
from mtnet.storage import models
from mtnet.tasks.episodes import as_floats
from mtnet.userdata import image_folder as folders, schema as schemas, table_files as tables
from mtnet.userdata.tables import read_inputs


def predict(
    model: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")],
    inputs: Annotated[
        tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="TABLE|PICTURE ...")
    ],
    out: Path | None = None,
    sheet: Path | None = None,
    run: Path | None = None,
) -> None:
    """Answer with an adapted network.

    Args:
        model: What `mtnet adapt` has written.
        inputs: A CSV or Parquet file, or pictures.
        out: A CSV or Parquet file for the answers; left out: shown, for a table as CSV.
        sheet: Where the contact sheet of pictures goes; left out: predictions.png, or nowhere
            where there is --out.
        run: Where a compact model finds its run, if that is no longer where it was.
    """
    if not inputs:
        raise InputError("give a table, or pictures, to answer for")
    loaded = models.load_model(model, run)
    table = loaded.about["kind"] == "table"
    wanted = "one table, CSV or Parquet" if table else "images"
    for path in inputs:
        if path.is_dir() or tables.is_table(path) != table or (table and len(inputs) > 1):
            raise InputError(f"{model} answers for {wanted}, not for {path}")
    if table:
        predict_rows(loaded, inputs[0], out)
    else:
        sheet = sheet or (Path("predictions.png") if out is None else None)
        predict_pictures(loaded, list(inputs), out, sheet)


def predict_rows(model: Model, path: Path, out: Path | None) -> None:
    schema = schemas.from_plain(model.about["schema"])
    table, x = read_inputs(schema, path, warn)
    raw = np.asarray(predict_compiled(model.net, jnp.asarray(x)))
    name, labels = schema.target.name, model.about["labels"]
    columns = {c: table[c].to_numpy(zero_copy_only=False) for c in table.column_names}
    if labels:
        p = np.asarray(jax.nn.softmax(jnp.asarray(raw)))
        columns[f"predicted {name}"] = np.array(labels)[p.argmax(1)]
        columns["probability"] = p.max(1)
    else:
        told = schemas.decode(schema.target, raw[:, 0])
        columns[f"predicted {name}"] = told.astype(np.float32)
    if out is None:
        sys.stdout.buffer.write(tables.as_csv(columns))
        sys.stdout.flush()
    else:
        tables.write_table(out, columns)
        console.print(f"Wrote {len(x)} answers to {out}", highlight=False)


def predict_pictures(model: Model, paths: list[Path], out: Path | None, sheet: Path | None) -> None:
    about = model.about
    pixels = folders.read_all(paths, about["size"], about["colour"])
    p = np.asarray(jax.nn.softmax(predict_compiled(model.net, as_floats(jnp.asarray(pixels)))))
    labels = np.array(about["labels"])
    said, sure = labels[p.argmax(1)], p.max(1)
    if out is None:
        shown = Table(box=None, padding=(0, 2, 0, 0))
        for column in ("picture", "label", "probability"):
            shown.add_column(column, justify="right" if column == "probability" else "left")
        for path, label, chance in zip(paths, said, sure, strict=True):
            shown.add_row(str(path), label, f"{chance:.3f}")
        console.print(shown)
    else:
        named = {"picture": np.array([str(p) for p in paths]), "label": said, "probability": sure}
        tables.write_table(out, named)
        console.print(f"Wrote {len(paths)} answers to {out}", highlight=False)
    if sheet is None:
        return
    try:
        contact_sheet(pixels, said.tolist(), sure.tolist()).savefig(sheet, dpi=120)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot write {sheet}: {error}") from None
    console.print(f"Contact sheet: {sheet}", highlight=False)
