"""`mtnet.load` and `mtnet.save`: one function for every kind of file."""

from pathlib import Path
from typing import Any

from mtnet.adapted import Model
from mtnet.adapted_tasks import TaskModels
from mtnet.errors import InputError
from mtnet.files import KINDS, read_arrays
from mtnet.storage import estimators, models, networks
from mtnet.storage.names import with_suffix
from mtnet.storage.pretrained import find_file
from mtnet.storage.task_models import save_task_models


def load(path: str | Path, *, run: str | Path | None = None) -> Any:
    """Load a network, a model or an estimator.

    Args:
        path: A file written by `mtnet.save`, `mtnet export` or `mtnet adapt`; a run folder of
            `mtnet train` or `mtnet fit`; or the name of a pretrained network
            ("omniglot-5way-mt-net"). The suffix .safetensors may be omitted.
        run: The run folder of a compact model, if it has been moved.

    Returns:
        A `TrainedNetwork` for a network or a run folder, a `Model` for an adapted model,
        `TaskModels` for those of many tasks, or the estimator. Any other file raises an InputError.
    """
    at = Path(path)
    if at.is_dir():
        return networks.network_of_run(at)
    at = find_file(str(path))
    kind = read_arrays(at)[1]["kind"]
    if kind == "model":
        return models.load_model(at, None if run is None else Path(run))
    if kind == "estimator":
        return estimators.load_estimator(at)
    if kind == "network":
        return networks.load_network(at)
    raise InputError(f"{at} is {KINDS.get(kind, kind)}: load takes networks, models and estimators")


def save(item: Any, path: str | Path) -> None:
    """Save a network, a model or an estimator in one file, without pickle.

    Args:
        item: A `TrainedNetwork`, a `Model`, `TaskModels`, an `MTNetRegressor` or an
            `MTNetClassifier`.
        path: The file to write; .safetensors is added if it is missing.
    """
    at = with_suffix(Path(path))
    if isinstance(item, networks.TrainedNetwork):
        networks.save_network(at, item.config, item.theta, item.about)
    elif isinstance(item, Model):
        models.save_model(at, item)
    elif isinstance(item, TaskModels):
        save_task_models(at, item)
    elif estimators.is_estimator(item):
        estimators.save_estimator(item, at)
    else:
        raise InputError(
            f"cannot save a {type(item).__name__}: save takes a TrainedNetwork, a Model or an "
            "estimator"
        )
