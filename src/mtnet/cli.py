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

from mtnet.commands import data
from mtnet.commands.adapt import adapt
from mtnet.commands.classify import classify
from mtnet.commands.common import console
from mtnet.commands.compare import compare
from mtnet.commands.evaluate import evaluate
from mtnet.commands.export import export
from mtnet.commands.fit import fit_command
from mtnet.commands.inspect import inspect
from mtnet.commands.list import list_
from mtnet.commands.predict import predict
from mtnet.commands.reproduce import reproduce
from mtnet.commands.train import train_command
from mtnet.config import Config, configure
from mtnet.errors import InputError
from mtnet.storage.config_file import read_config
from mtnet.training.loop import Diverged, Stopped
from mtnet.version import __version__


def data_() -> None:
    """Get, check or show an image set: `mtnet data --help`."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if arguments == ["--version"]:
        console.print(f"mtnet {__version__}", highlight=False)
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
        return read_config(Path(given["--config"]))
    return configure(family=given["--family"]) if "--family" in given else Config()


def _own(arguments: Sequence[str]) -> Config:
    """What `mtnet fit` starts from; the data are still to come."""
    pictures = any(a == "--images" or a.startswith("--images=") for a in arguments)
    return configure(family="images" if pictures else "table")


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
