"""`mtnet adapt`: learn a new task, or many, from a few examples each."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from mtnet.commands.adapt_examples import read_examples
from mtnet.commands.adapt_write import Start, write_adapted
from mtnet.commands.common import console, warn
from mtnet.commands.parse import Flag, OptionalPath, RunFolder, parse, run as run_command
from mtnet.errors import InputError
from mtnet.storage.names import with_suffix
from mtnet.storage.run_folder import load_best_member, open_run
from mtnet.storage.supports import load_supports, open_origin, run_origin
from mtnet.tasks import FAMILIES
from mtnet.userdata.dataset import inputs_header
from mtnet.userdata.new_tasks import Support, some
from mtnet.userdata.support_sets import merge_supports

Examples = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="TABLE|FOLDER")]
NoFlag = Annotated[Flag, tyro.conf.arg(help_behavior_hint="")]


@dataclass(frozen=True)
class Choice:
    """What decides which other arguments there are."""

    update: Path | None = None


def main(arguments: Sequence[str]) -> None:
    choice, _ = parse(Choice, "mtnet adapt", arguments, add_help=False)
    run_command(adapt if choice.update is None else update_model, "adapt", arguments)


def adapt(
    run: RunFolder,
    examples: Examples,
    out: Path,
    compact: Flag = False,
    store_examples: NoFlag = True,
) -> None:
    """Learn a new task from a few examples; writes a model to one file.

    If the table has several tasks, in the column that was --task of mtnet fit, the
    file holds one model per task. More examples later: mtnet adapt --update MODEL
    TABLE|FOLDER gives the same model as adapting to all examples at once.

    With --compact masks are sampled, as in training, so that some rows of the
    weights do not change and need not be stored. Of a method that compares features,
    only its memory of the examples is stored, such as class means.

    Args:
        run: Run folder written by mtnet fit.
        examples: Rows of the task (CSV, TSV or Parquet), or a folder with one folder per class.
        out: File to write; .safetensors is added if it is missing.
        compact: Write only what changed; mtnet predict then needs the run folder too.
        store_examples: Do not store the examples in the file; --update then cannot add others.
    """
    if run.is_file():
        raise InputError(f"{run} is a file: the run comes first, mtnet adapt RUN {run} --out MODEL")
    trained = open_run(run)
    config = trained.config
    if not FAMILIES[config.family].own:
        raise InputError(f"{run} was trained on {config.family}; adapt needs a run of mtnet fit")
    _, theta = load_best_member(trained, warn)
    about = inputs_header(config)
    supports = read_examples(config, about, examples)
    from_run = Start(trained, theta, about | {"base": run_origin(trained, theta)}, compact)
    write_adapted(with_suffix(out), from_run, supports, str(examples), store_examples)


def update_model(
    examples: Examples,
    update: Annotated[Path, tyro.conf.arg(metavar="MODEL")],
    out: OptionalPath = None,
    run: OptionalPath = None,
) -> None:
    """Add examples to a model; the same model as adapting to all examples at once.

    Rows of a task that the model does not have add a task; images of a new class
    add the class.

    Args:
        examples: New rows (CSV, TSV or Parquet), or a folder with one folder per class.
        update: Model written by mtnet adapt.
        out: File to write. Default: the model itself, replaced when the new one is complete.
        run: Run folder of the model, if it was moved.
    """
    old, about = load_supports(update)
    trained, theta = open_origin(update, about, run)
    known = ("kind", "schema", "size", "colour", "invert")
    inputs: dict[str, Any] = {name: about[name] for name in known if name in about}
    new = read_examples(trained.config, inputs, examples, least=1)
    start = Start(trained, theta, inputs | {"base": run_origin(trained, theta)}, about["compact"])
    supports = merge_supports(old, in_known_task(old, new, update, examples, inputs))
    path = with_suffix(out or update) if out or not update.exists() else update
    write_adapted(path, start, supports, f"{update} and {examples}", True)
    for text in news(old, new):
        console.print(text, highlight=False, soft_wrap=True)


def in_known_task(
    old: list[Support], new: list[Support], model: Path, examples: Path, about: dict[str, Any]
) -> list[Support]:
    """The new rows with the task that they belong to; an InputError if that is not clear."""
    column = about.get("schema", {}).get("task")
    if new[0].task is None and old[0].task is not None:
        if len(old) > 1:
            raise InputError(
                f"{examples} has no column {column!r}, which says whose model to use: add it"
            )
        return [new[0]._replace(task=old[0].task)]
    if new[0].task is not None and old[0].task is None:
        raise InputError(
            f"{examples} has a column {column!r}, the rows of {model} had none: remove the column"
        )
    return new


def news(old: list[Support], new: list[Support]) -> list[str]:
    """What was added to a model."""
    tasks = {s.task: s for s in old}
    added = [str(s.task) for s in new if s.task is not None and s.task not in tasks]
    known = {label for s in old for label in s.labels}
    classes = sorted({label for s in new for label in s.labels} - known)
    texts = [f"Added {sum(len(s.y) for s in new)} examples to {sum(len(s.y) for s in old)}."]
    texts += [f"New tasks: {some(added)}"] if added and len(tasks) else []
    texts += [f"New classes: {some(classes)}"] if classes else []
    return texts
