"""Measure a trained network on test classes and put it into src/mtnet/pretrained.

    python tools/pretrained.py RUN NAME [--ways 5 20] [--steps 3] [--tasks 2000]

RUN is a run folder, or a network file to measure again. The header of the file says what was
measured; tests/test_data_sets.py holds every network to it.
"""

from pathlib import Path
from typing import Annotated, Any

import jax
import tyro

from mtnet.build import is_classification
from mtnet.config import Config
from mtnet.core.evaluate import summarise
from mtnet.core.temperature import fit_temperature
from mtnet.evaluation.calibration import query_logits
from mtnet.evaluation.measure import history, measure
from mtnet.methods import METHODS
from mtnet.revision import git_commit
from mtnet.storage.names import SUFFIX
from mtnet.storage.networks import TrainedNetwork, load_network, network_of_run, save_network
from mtnet.storage.run_folder import open_run, read_metrics

FOLDER = Path(__file__).parent.parent / "src" / "mtnet" / "pretrained"
TRAINING = (
    "iterations",
    "iterations_planned",
    "per_iteration",
    "measured_at",
    "minutes",
    "init_from",
    "statistics_in_training",
)
"""What a header says about the training, kept when a file is measured again."""
LARGEST = 3_000_000
"""Bytes of a file, at most."""


def accuracy(network: TrainedNetwork, ways: int, steps: int, tasks: int) -> dict[str, Any]:
    """Percent of query images named right in tasks of the test split, one query per class."""
    theta = jax.tree.map(lambda leaf: leaf[None], network.theta)
    test = {"ways": ways, "queries": 1}
    scores = measure(network.config, theta, [0], tasks=tasks, steps=steps, **test)
    summary = summarise(scores[0, :, min(steps, scores.shape[2] - 1)])
    result = {"mean": round(float(summary.mean), 2), "ci95": round(float(summary.ci95), 3)}
    shots = network.config.tasks.shots
    return test | {"shots": shots, "steps": steps, "tasks": tasks} | result


def error(network: TrainedNetwork, steps: int, tasks: int) -> dict[str, Any]:
    """Mean squared error on new tasks of a regression, with as many shots as in training."""
    theta = jax.tree.map(lambda leaf: leaf[None], network.theta)
    test = {"shots": network.config.tasks.shots, "queries": 10}
    scores = measure(network.config, theta, [0], tasks=tasks, steps=steps, **test)
    summary = summarise(scores[0, :, steps])
    result = {"mean": round(float(summary.mean), 4), "ci95": round(float(summary.ci95), 4)}
    result["median"] = round(float(summary.median), 4)
    return test | {"steps": steps, "tasks": tasks} | result


def statistics(config: Config) -> str:
    """Whose statistics norms use: with folded norms, never those of queries."""
    folded = config.net.fold_norms and not config.net.centre
    return "inductive" if folded else config.inner.statistics


def measured(
    network: TrainedNetwork, ways: tuple[int, ...], steps: int, tasks: int
) -> dict[str, Any]:
    """What the header says that the network scores."""
    config = network.config
    if not is_classification(config):
        return {"error": [error(network, n, tasks) for n in (steps, config.inner.steps)]}
    return {
        "accuracy": [accuracy(network, n, steps, tasks) for n in ways],
        "temperature": fit_temperature(*query_logits(config, network.theta, "validation")),
        "statistics": statistics(config),
        "test classes": f"{config.family}, test split",
    }


def main(
    run: Annotated[Path, tyro.conf.Positional],
    name: Annotated[str, tyro.conf.Positional],
    ways: tuple[int, ...] = (5,),
    steps: int = 3,
    tasks: int = 2000,
) -> None:
    """Measure a network and put it into the package.

    Args:
        run: Run folder or network file.
        name: Name of the pretrained network.
        ways: Numbers of classes to measure.
        steps: Inner steps, of methods that have any.
        tasks: Test tasks.
    """
    network = network_of_run(run) if run.is_dir() else load_network(run)
    about = {name: network.about[name] for name in TRAINING if name in network.about}
    if run.is_dir():
        about = history(network.config, read_metrics(open_run(run)), about["measured_at"])
    steps = steps if METHODS[network.config.method].steps else 0
    about |= measured(network, ways, steps, tasks) | {"commit": git_commit()}
    path = FOLDER / f"{name}{SUFFIX}"
    save_network(path, network.config, network.theta, about)
    if path.stat().st_size > LARGEST:
        raise SystemExit(f"{path} has {path.stat().st_size} bytes, more than {LARGEST}")
    print(path, about)


if __name__ == "__main__":
    tyro.cli(main)
