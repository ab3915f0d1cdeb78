"""Estimators in one file: parameters, what was learned across tasks, the adapted network."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax
import numpy as np

from mtnet.check_data import check_data
from mtnet.core.conformal import PLAIN, from_plain, to_plain
from mtnet.errors import InputError, check_name
from mtnet.files import arrays_of, fill_tree, read_arrays, write_arrays
from mtnet.userdata.headers import COLUMN

ABOUT = {
    "estimator": str,
    "params": {},
    "data?": {"columns": [COLUMN], "named": bool, "outputs": int, "standardised": bool},
    "at_test?": str,
    "calibration?": {str: PLAIN},
    "fitted?": {},
}
"""What the header must hold."""
KINDS = ("MTNetClassifier", "MTNetRegressor")
FITTED = (
    *("classes_", "flat_", "n_features_in_", "feature_names_in_"),
    *("support_rows_", "support_squares_"),
)


def is_estimator(item: Any) -> bool:
    """Whether the item is one of mtnet's estimators; does not import scikit-learn."""
    module = sys.modules.get("mtnet.estimators.base")
    return module is not None and isinstance(item, module.FewShot)


def save_estimator(estimator: Any, path: Path) -> None:
    params = estimator.get_params(deep=False)
    del params["learned"]
    about: dict[str, Any] = {"estimator": type(estimator).__name__, "params": params}
    arrays: dict[str, Any] = {}
    learned = getattr(estimator, "learned_", estimator.learned)
    if learned is not None:
        if not hasattr(estimator, "model_") and learned.settings != estimator._settings():
            raise InputError("parameters have changed since meta_fit: call meta_fit before saving")
        data = learned.data
        arrays = {f"theta{name}": a for name, a in arrays_of(learned.theta).items()}
        arrays |= {"y.mean": data.y.mean, "y.spread": data.y.spread}
        about["params"] |= learned.settings._asdict()
        about["data"] = {
            "columns": [asdict(column) for column in data.columns],
            "named": data.named,
            "outputs": data.outputs,
            "standardised": data.standardised,
        }
        about["at_test"] = learned.at_test
        about["calibration"] = {str(k): to_plain(c) for k, c in learned.calibration.items()}
    if hasattr(estimator, "model_"):
        arrays |= {f"net{name}": a for name, a in arrays_of(estimator.model_).items()}
        fitted = {n: getattr(estimator, n) for n in FITTED if hasattr(estimator, n)}
        about["fitted"] = {
            n: v.tolist() if isinstance(v, np.ndarray) else v for n, v in fitted.items()
        }
    about["params"] = {  # a search sets NumPy's numbers
        n: v.item() if isinstance(v, np.generic) else v for n, v in about["params"].items()
    }
    write_arrays(path, "estimator", arrays, about=about)


def load_estimator(path: Path) -> Any:
    from mtnet import estimators  # scikit-learn takes long to import

    arrays, header = read_arrays(path, "estimator")
    about = check_data(header.get("about"), ABOUT, str(path), "write it again with mtnet.save")
    try:
        check_name("estimator", about["estimator"], KINDS)
        estimator = getattr(estimators, about["estimator"])(**about["params"])
        return _with_arrays(estimator, about, arrays) if "data" in about else estimator
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{path} does not hold the estimator it names: {error}") from None


def _with_arrays(estimator: Any, about: dict[str, Any], arrays: dict[str, Any]) -> Any:
    """The estimator with what it has learned."""
    from mtnet.estimators.learned import Known, Learned, Scale, learner_for
    from mtnet.userdata.schema import Column

    plain = about["data"]
    columns = [
        Column(c["name"], c["mean"], c["spread"], c["levels"] and tuple(c["levels"]))
        for c in plain["columns"]
    ]
    y = Scale(arrays["y.mean"], arrays["y.spread"])
    data = Known(
        *(tuple(columns), plain["named"], y, plain["outputs"]),
        *(estimator._classes, plain["standardised"]),
    )
    settings = estimator._settings()
    like = jax.eval_shape(learner_for(settings, data).init, jax.random.key(0))
    theta = fill_tree(like, _under(arrays, "theta"))
    found = about.get("calibration", {})
    estimator.learned = Learned(
        *(theta, settings, data),
        at_test=about.get("at_test", estimator.at_test),
        calibration={int(k): from_plain(c, "the file") for k, c in found.items()},
    )
    if "fitted" in about:
        for name in FITTED:
            if name in about["fitted"]:
                value = about["fitted"][name]
                setattr(estimator, name, np.array(value) if isinstance(value, list) else value)
        estimator.learned_ = estimator.learned
        estimator._set_model(_under(arrays, "net"))
    return estimator


def _under(arrays: dict[str, Any], part: str) -> dict[str, Any]:
    return {name.removeprefix(part): a for name, a in arrays.items() if name.startswith(part)}
