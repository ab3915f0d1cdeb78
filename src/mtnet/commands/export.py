"""`mtnet export`: a trained network in one file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from mtnet.commands.common import console, warn
from mtnet.commands.parse import RunFolder, run as run_command
from mtnet.evaluation.measure import history
from mtnet.storage.names import with_suffix
from mtnet.storage.networks import save_network
from mtnet.storage.run_folder import load_best_member, open_run, read_metrics


def main(arguments: Sequence[str]) -> None:
    run_command(export, "export", arguments)


def export(
    run: RunFolder, out: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
) -> None:
    """Write a trained network to one file.

    Read it with mtnet.load in Python, or use it with mtnet classify --network if it
    was trained on omniglot.

    Args:
        run: Run folder; the best network on validation tasks is written, or the last one.
        out: File to write; .safetensors is added if it is missing.
    """
    path = with_suffix(out)
    trained = open_run(run)
    iteration, theta = load_best_member(trained, warn)
    about = history(trained.config, read_metrics(trained, warn), iteration)
    save_network(path, trained.config, theta, about)
    console.print(f"Wrote {path}: {trained.config.method}, iteration {iteration}", highlight=False)
