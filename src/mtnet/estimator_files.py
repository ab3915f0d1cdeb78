"""Estimators in one file: parameters, what was learned across tasks, the adapted network."""

from pathlib import Path
from typing import Any

import jax
import numpy as np

from mtnet.core.types import InputError
from mtnet.files import arrays_of, read, restored, write
from mtnet.learned import Learned, Scale

FITTED = ("classes_", "flat_", "n_features_in_", "feature_names_in_")


def save(estimator: Any, path: Path) -> None:
    params = {k: v for k, v in estimator.get_params(deep=False).items() if k != "learned"}
    about: dict[str, Any] = {"estimator": type(estimator).__name__, "params": params}
    arrays: dict[str, Any] = {}
    learned = estimator.learned
    if learned is not None:
        arrays = {f"theta{name}": a for name, a in arrays_of(learned.theta).items()}
        for side, scale in (("x", learned.x), ("y", learned.y)):
            arrays |= {f"{side}.mean": scale.mean, f"{side}.spread": scale.spread}
        about["outputs"] = learned.outputs
    if hasattr(estimator, "model_"):
        arrays |= {f"net{name}": a for name, a in arrays_of(estimator.model_).items()}
        there = {n: getattr(estimator, n) for n in FITTED if hasattr(estimator, n)}
        about["fitted"] = {
            n: v.tolist() if isinstance(v, np.ndarray) else v for n, v in there.items()
        }
    write(path, arrays, about=about)


def load(cls: type[Any], path: Path) -> Any:
    arrays, header = read(path)
    about = header.get("about", {})
    if about.get("estimator") != cls.__name__:
        raise InputError(
            f"{path} holds {about.get('estimator', 'something else')}, not {cls.__name__}"
        )
    estimator = cls(**about["params"])
    if "outputs" not in about:
        return estimator
    x, y = (Scale(arrays[f"{side}.mean"], arrays[f"{side}.spread"]) for side in "xy")
    outputs, inputs = about["outputs"], len(x.mean)
    like = jax.eval_shape(estimator._learner(inputs, outputs).init, jax.random.key(0))
    try:
        theta = restored(like, _under(arrays, "theta"))
        made = (estimator.method, estimator.width, estimator.depth)
        estimator.learned = Learned(theta, x, y, outputs, made)
        if "fitted" in about:
            for name, value in about["fitted"].items():
                setattr(estimator, name, np.array(value) if isinstance(value, list) else value)
            estimator._hold(_under(arrays, "net"))
    except ValueError as error:
        raise InputError(f"{path} does not hold what it says: {error}") from None
    return estimator


def _under(arrays: dict[str, Any], part: str) -> dict[str, Any]:
    return {name.removeprefix(part): a for name, a in arrays.items() if name.startswith(part)}
