"""`mtnet ...`: every command by name."""

import itertools
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import tyro
from rich.table import Table

import mtnet
from mtnet import settings
from mtnet.commands.common import console
from mtnet.commands.comparing import compare
from mtnet.commands.models import adapt, inspect, predict
from mtnet.commands.own import fit_command
from mtnet.commands.paper import reproduce
from mtnet.commands.pictures import classify
from mtnet.commands.training import evaluate, export, train_command
from mtnet.config import Config
from mtnet.core.types import InputError
from mtnet.data import commands as data
from mtnet.experiments import EXPERIMENTS
from mtnet.methods import METHODS
from mtnet.runs.train import Diverged, Stopped
from mtnet.tasks import FAMILIES


def list_() -> None:
    """Show every method, family and experiment.

    Of a method: what it adapts to a task, whether it does curves (regression) and classes, and
    whether tasks may have another number of classes than those of training.
    """
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for title, entries in (
        ("Methods", {k: v.about for k, v in METHODS.items()}),
        ("Families", {k: v.about for k, v in FAMILIES.items()}),
        ("Experiments", {k: v.about for k, v in EXPERIMENTS.items()}),
    ):
        table.add_row(f"[bold]{title}", "")
        for name, about in entries.items():
            table.add_row(f"  {name}", about)
    console.print(table)
    able = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("What methods do", "adapts", "curves", "classes", "other ways than in training"):
        able.add_column(column)
    yes = lambda able: "yes" if able else "-"  # noqa: E731
    for name, m in METHODS.items():
        ways = "with --tied" if "tied" in m.takes else yes(m.any_ways)
        able.add_row(f"  {name}", m.adapts, yes(m.regression), "yes", ways)
    console.print(able)


def data_() -> None:
    """Get, check or show an image set: `mtnet data --help`."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if arguments == ["--version"]:
        console.print(f"mtnet {mtnet.__version__}", highlight=False)
        return 0
    _cache_compilations()
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
    try:
        commands: dict[str, Any] = {
            "list": list_,
            "train": train_command(_defaults(arguments)),
            "evaluate": evaluate,
            "reproduce": reproduce,
            "compare": compare,
            "data": data_,
            "classify": classify,
            "export": export,
            "fit": fit_command(_own(arguments)),
            "adapt": adapt,
            "predict": predict,
            "inspect": inspect,
        }
        depth = 1 if arguments[:1] == ["data"] else 0
        if depth:
            commands = {"get": data.get, "check": data.check, "show": data.show}
        tyro.extras.subcommand_cli_from_dict(
            commands,
            prog=" ".join(["mtnet", *arguments[:depth]]),
            description="Few-shot learning with learned metrics and subspaces.",
            args=arguments[depth:] or ["--help"],
        )
    except InputError as error:
        return _fail(str(error), 2)
    except Diverged as error:
        return _fail(str(error), 1)
    except Stopped as error:
        return _fail(str(error), 130)
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except BrokenPipeError:  # the reader of our output, `head` say, has had enough
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    return 0


def _defaults(arguments: Sequence[str]) -> Config:
    """The settings that flags of `mtnet train` start from: a file's, or the family's own."""
    given = dict(itertools.pairwise(arguments))
    given |= dict(a.split("=", 1) for a in arguments if a.startswith("--") and "=" in a)
    if "--config" in given:
        return settings.read(Path(given["--config"]))
    return settings.preset(given["--family"]) if "--family" in given else Config()


def _own(arguments: Sequence[str]) -> Config:
    """What `mtnet fit` starts from; the data are still to come."""
    pictures = any(a == "--images" or a.startswith("--images=") for a in arguments)
    return settings.preset("pictures" if pictures else "table")


def _cache_compilations() -> None:
    """Compile once, not once a run; workers read the environment, this process the setting."""
    cache = os.environ.setdefault(
        "JAX_COMPILATION_CACHE_DIR", str(Path.home() / ".cache" / "mtnet" / "jax")
    )
    jax.config.update("jax_compilation_cache_dir", cache)


def _fail(message: str, status: int) -> int:
    print(f"mtnet: {message}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
