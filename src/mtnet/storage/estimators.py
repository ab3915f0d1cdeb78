"""Estimators in one file: parameters, what was learned across tasks, the adapted network."""

import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np

from mtnet.check_data import check_data
from mtnet.errors import InputError, check_name
from mtnet.files import arrays_of, fill_tree, read_arrays, write_arrays

ABOUT = {"estimator": str, "params": {}, "outputs?": int, "fitted?": {}}
"""What the header must hold."""
FITTED = ("classes_", "flat_", "n_features_in_", "feature_names_in_")


def is_estimator(item: Any) -> bool:
    """Whether the item is one of mtnet's estimators; does not import scikit-learn."""
    module = sys.modules.get("mtnet.estimators.few_shot")
    return module is not None and isinstance(item, module.FewShot)


def save_estimator(estimator: Any, path: Path) -> None:
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
        fitted = {n: getattr(estimator, n) for n in FITTED if hasattr(estimator, n)}
        about["fitted"] = {
            n: v.tolist() if isinstance(v, np.ndarray) else v for n, v in fitted.items()
        }
    write_arrays(path, "estimator", arrays, about=about)


def load_estimator(path: Path) -> Any:
    from mtnet import estimators  # scikit-learn takes long to import

    arrays, header = read_arrays(path, "estimator")
    about = check_data(header.get("about"), ABOUT, str(path), "write it again with mtnet.save")
    try:
        check_name("estimator", about["estimator"], estimators.__all__)
        estimator = getattr(estimators, about["estimator"])(**about["params"])
        return _with_arrays(estimator, about, arrays) if "outputs" in about else estimator
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{path} does not hold the estimator it names: {error}") from None


def _with_arrays(estimator: Any, about: dict[str, Any], arrays: dict[str, Any]) -> Any:
    """The estimator with what it has learned."""
    from mtnet.estimators.learned import Learned, Scale

    x, y = (Scale(arrays[f"{side}.mean"], arrays[f"{side}.spread"]) for side in "xy")
    outputs, inputs = about["outputs"], len(x.mean)
    like = jax.eval_shape(estimator._learner(inputs, outputs).init, jax.random.key(0))
    theta = fill_tree(like, _under(arrays, "theta"))
    architecture = (estimator.method, estimator.width, estimator.depth)
    estimator.learned = Learned(theta, x, y, outputs, architecture)
    if "fitted" in about:
        for name in FITTED:
            if name in about["fitted"]:
                value = about["fitted"][name]
                setattr(estimator, name, np.array(value) if isinstance(value, list) else value)
        estimator._set_model(_under(arrays, "net"))
    return estimator


def _under(arrays: dict[str, Any], part: str) -> dict[str, Any]:
    return {name.removeprefix(part): a for name, a in arrays.items() if name.startswith(part)}
