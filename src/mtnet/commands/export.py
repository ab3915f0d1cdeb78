"""`mtnet export`: a trained network in one file."""

from pathlib import Path

import tyro

from mtnet.commands.common import console, warn
from mtnet.errors import InputError
from mtnet.evaluation.measure import history
from mtnet.storage import run_folder as rundir
from mtnet.storage.networks import save_network
from mtnet.storage.run_folder import load_best_member


def export(run: tyro.conf.Positional[Path], out: tyro.conf.Positional[Path]) -> None:
    """Write a trained network into one file, for `mtnet.load` and `mtnet classify`.

    Args:
        run: A run directory; its best state on validation tasks is taken, or the last one.
        out: The file, ending in .safetensors.
    """
    if out.suffix != ".safetensors":
        raise InputError(f"{out} must end in .safetensors")
    opened = rundir.open_run(run)
    at, theta = load_best_member(opened, warn)
    about = history(opened.config, rundir.read_metrics(opened), at)
    try:
        save_network(out, opened.config, theta, about)
    except OSError as error:
        raise InputError(f"cannot write {out}: {error.strerror}") from None
    console.print(f"Wrote {out}: {opened.config.method}, iteration {at}", highlight=False)
