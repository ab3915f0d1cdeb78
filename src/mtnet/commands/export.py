"""`mtnet export`: a trained network in one file, or an adapted one for other programs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from mtnet.commands.common import console, warn
from mtnet.commands.parse import OptionalPath, OptionalStr, run as run_command
from mtnet.errors import InputError, check_name
from mtnet.evaluation.measure import history
from mtnet.export.formats import WRITERS
from mtnet.export.network import network_of
from mtnet.plain.layers import Layer
from mtnet.storage.names import SUFFIX, with_suffix
from mtnet.storage.networks import save_network
from mtnet.storage.predictors import load_predictors
from mtnet.storage.run_folder import load_best_member, open_run, read_metrics

Format = Annotated[
    str | None, tyro.conf.arg(metavar=f"{{{','.join(WRITERS)}}}", help_behavior_hint="")
]
Source = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN|MODEL")]
Target = Annotated[
    tuple[Path, ...],
    tyro.conf.Positional,
    tyro.conf.arg(metavar="[FILE]", help_behavior_hint=""),
]


def main(arguments: Sequence[str]) -> None:
    run_command(export, "export", arguments)


def export(
    source: Source,
    out: Target = (),
    to: Format = None,
    task: OptionalStr = None,
    run: OptionalPath = None,
) -> None:
    """Write a trained network to one file, or an adapted one for other programs.

    A run folder is written as one file, which mtnet.load and mtnet classify --network
    read. With --to, a model of mtnet adapt is written as an ordinary network: onnx
    (from the columns of a table, or an image, to the prediction), torch (arrays for a
    torch.nn.Sequential), safetensors, json, or a folder as on Hugging Face.

    Args:
        source: Run folder (the best network on validation tasks), or a model of mtnet adapt.
        out: File or folder to write. Default: beside the model, named after it.
        to: Format of an adapted network.
        task: Which task, if the model file has several.
        run: Run folder of a compact model, if it was moved.
    """
    if len(out) > 1:
        raise InputError(f"unexpected argument {str(out[1])!r}: give one file to write")
    if to is not None:
        check_name("format", to, WRITERS)
        export_model(source, next(iter(out), None), to, task, run)
        return
    if not out or task is not None or run is not None:
        raise InputError(f"say how to write {source}: a run with a file, a model with --to onnx")
    export_run(source, with_suffix(out[0]))


def export_run(source: Path, path: Path) -> None:
    """A trained network in one file."""
    if source.is_file():
        raise InputError(
            f"{source} is a file, not a run folder: say how to write it, e.g. --to onnx"
        )
    trained = open_run(source)
    iteration, theta = load_best_member(trained, warn)
    about = history(trained.config, read_metrics(trained, warn), iteration)
    save_network(path, trained.config, theta, about)
    console.print(f"Wrote {path}: {trained.config.method}, iteration {iteration}", highlight=False)


def export_model(
    source: Path, out: Path | None, to: str, task: str | None, run: Path | None
) -> None:
    """An adapted network in another format."""
    if source.is_dir():
        raise InputError(
            f"{source} is a run folder, whose network is for no task yet: adapt it with mtnet "
            "adapt, and export the model"
        )
    network = network_of(load_predictors(source, run), task, str(source))
    suffix, write = WRITERS[to]
    path = out or source.with_name(source.name.removesuffix(SUFFIX) + suffix)
    if path.resolve() in (source.resolve(), with_suffix(source).resolve()):
        raise InputError(f"{path} is the model itself: choose another file")
    write(network, path)
    console.print(f"Wrote {path}: {described_in_short(network.layers)}", highlight=False)


def described_in_short(layers: list[Layer]) -> str:
    """How many layers and numbers."""
    numbers = sum(array.size for layer in layers for array in layer.arrays.values())
    return f"{sum(1 for layer in layers if layer.arrays)} layers, {numbers} numbers"
