"""`mtnet adapt`, `mtnet predict`, `mtnet inspect`: a run, a model of a task, its answers."""

import dataclasses
import sys
from pathlib import Path
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from rich.table import Table

from mtnet import models
from mtnet.commands.common import console, warn
from mtnet.config import Config
from mtnet.core.adapt import answers
from mtnet.core.types import Batch, InputError
from mtnet.data import folders, own
from mtnet.report.cells import contact_sheet, facts_figure
from mtnet.runs.run import open_run
from mtnet.runs.train import network
from mtnet.tables import files as tables, schema as schemas
from mtnet.tables.prepare import inputs_of, support_of
from mtnet.tasks import FAMILIES
from mtnet.tasks.episodes import as_floats

Run = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
MANY = 20
"""Classes that a table of answers has columns for; more are told by the best one only."""


def adapt(
    run: Run,
    examples: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="TABLE|FOLDER")],
    out: Path,
    compact: bool = False,
) -> None:
    """Learn a new task from a few examples; writes a plain network into one file.

    Args:
        run: What `mtnet fit` has made.
        examples: The task's rows, a CSV or Parquet file; or a folder with a folder a class.
        out: The file to write, ending in .safetensors; the ending may be left out.
        compact: Write only the rows that the task has changed; predicting then needs the run as
            well. Rows are drawn by chance, as in training, so that some do not change at all.
    """
    if run.is_file():
        raise InputError(f"{run} is a file: the run comes first, mtnet adapt RUN {run} --out MODEL")
    opened = open_run(run)
    config = opened.config
    if not FAMILIES[config.family].own:
        raise InputError(f"{run} was trained on {config.family}; adapt takes runs of `mtnet fit`")
    _, theta = network(opened, warn)
    about = own.opened(config.data).about
    if compact:
        config = dataclasses.replace(
            config, inner=dataclasses.replace(config.inner, at_test="sample")
        )
    of_task = of_table if config.family == "table" else of_folder
    support, labels, kept = of_task(config, about, examples)
    ways = len(labels) if labels and config.tied else None
    model = models.adapt(config, theta, support, ways, labels=list(labels), **kept)
    path = models.with_ending(out)
    if compact:
        models.save_compact(path, model, config, theta, run)
    else:
        models.save(path, model)
    console.print(
        f"Wrote {path}: {config.method} adapted to {len(support.y)} examples, "
        f"{path.stat().st_size / 1000:.1f} kB. Next: mtnet predict {path} ...",
        highlight=False,
    )


def of_table(
    config: Config, about: dict[str, Any], path: Path
) -> tuple[Batch, tuple[str, ...], dict[str, Any]]:
    """A task's rows: the support set, the names of its classes, what a model must remember."""
    if path.is_dir():
        raise InputError(f"{path} is a folder; this run takes a table, CSV or Parquet")
    schema = schemas.from_plain(about["schema"])
    x, y, names = support_of(schema, path, warn)
    if names and not config.tied:
        known = schema.target.levels or ()
        for name in names:
            if name not in known:
                raise InputError(
                    f"{path}: column {schema.target.name!r} has {name!r}, which was in no training "
                    f"group; there are: {', '.join(known)}"
                )
        y, names = np.array([known.index(names[i]) for i in y], np.int32), known
    kept = {"kind": "table", "schema": about["schema"]}
    return Batch(jnp.asarray(x), jnp.asarray(y)), names, kept


def of_folder(
    config: Config, about: dict[str, Any], path: Path
) -> tuple[Batch, tuple[str, ...], dict[str, Any]]:
    """A task's pictures; the same."""
    if path.is_file():
        raise InputError(f"{path} is a file; this run takes a folder with a folder for each class")
    found = folders.classes_of(path)
    if not config.tied and len(found) != config.ways:
        raise InputError(f"{path} has {len(found)} classes; this run tells {config.ways} apart")
    paths = [p for pictures in found.values() for p in pictures]
    pixels = folders.read_all(paths, about["size"], about["colour"])
    y = np.repeat(np.arange(len(found), dtype=np.int32), [len(p) for p in found.values()])
    kept = {"kind": "pictures", "size": about["size"], "colour": about["colour"]}
    return Batch(as_floats(jnp.asarray(pixels)), jnp.asarray(y)), tuple(found), kept


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
    loaded = models.load(model, run)
    table = loaded.about["kind"] == "table"
    wanted = "one table, CSV or Parquet" if table else "pictures"
    for path in inputs:
        if path.is_dir() or tables.is_table(path) != table or (table and len(inputs) > 1):
            raise InputError(f"{model} answers for {wanted}, not for {path}")
    if table:
        predict_rows(loaded, inputs[0], out)
    else:
        sheet = sheet or (Path("predictions.png") if out is None else None)
        predict_pictures(loaded, list(inputs), out, sheet)


def predict_rows(model: models.Model, path: Path, out: Path | None) -> None:
    schema = schemas.from_plain(model.about["schema"])
    table, x = inputs_of(schema, path, warn)
    raw = np.asarray(answers(model.net, jnp.asarray(x)))
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
        tables.write(out, columns)
        console.print(f"Wrote {len(x)} answers to {out}", highlight=False)


def predict_pictures(
    model: models.Model, paths: list[Path], out: Path | None, sheet: Path | None
) -> None:
    about = model.about
    pixels = folders.read_all(paths, about["size"], about["colour"])
    p = np.asarray(jax.nn.softmax(answers(model.net, as_floats(jnp.asarray(pixels)))))
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
        tables.write(out, named)
        console.print(f"Wrote {len(paths)} answers to {out}", highlight=False)
    if sheet is None:
        return
    try:
        contact_sheet(pixels, said.tolist(), sure.tolist()).savefig(sheet, dpi=120)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot write {sheet}: {error}") from None
    console.print(f"Contact sheet: {sheet}", highlight=False)


def inspect(
    what: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN|MODEL")],
    picture: Path | None = None,
) -> None:
    """Show, cell by cell, what a task may change, and what one has changed.

    Rows updated: those with mask 1, or their expected number where masks are not drawn. Rank and
    spectrum are those of T M T', the metric that gradients pass through. Step: alpha times its mean
    eigenvalue. Moved: |A' - A| / |A|, for a model.

    Args:
        what: A run directory, or a model that `mtnet adapt` has written.
        picture: Where to draw it; left out: inspect.png in the run, or beside the model.
    """
    if what.is_dir():
        opened = open_run(what)
        iteration, theta = network(opened, warn)
        facts = models.cells_of_run(opened.config, theta)
        cells = {name: f._asdict() for name, f in facts.items()}
        title = f"{opened.config.method} on {opened.config.family}, iteration {iteration}"
    else:
        about = models.about_of(what)
        cells, title = about["cells"], f"{about['method']}, adapted"
    shown = Table(title=title)
    for column in ("cell", "rows", "updated", "rank", "largest", "median", "step", "moved"):
        shown.add_column(column, justify="left" if column == "cell" else "right")
    for name, f in cells.items():
        numbers = (f["spectrum"][0], float(np.median(f["spectrum"])), f["step"], f["moved"])
        told = ("-" if v is None else f"{v:.3g}" for v in numbers)
        shown.add_row(name, str(f["rows"]), f"{f['updated']:.1f}", str(f["rank"]), *told)
    console.print(shown)
    console.print("largest, median: eigenvalues of T M T'", highlight=False)
    beside = what / "inspect.png" if what.is_dir() else models.with_ending(what).with_suffix(".png")
    at = picture or beside
    try:
        facts_figure(cells, title).savefig(at, dpi=120)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot write {at}: {error}") from None
    console.print(f"Picture: {at}", highlight=False)
