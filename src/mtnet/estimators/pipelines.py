"""Pipelines whose transformers keep what they were fitted to in meta-training."""

from typing import Any

from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline

from mtnet.errors import InputError
from mtnet.estimators.base import FewShot


def meta_fit_pipeline(pipeline: Pipeline, X: Any, y: Any, groups: Any) -> Pipeline:
    """Fit the transformers of a pipeline and meta-fit its last step, on all groups.

    `Pipeline.fit` fits every transformer to the rows of one task; a scaler would remove the
    differences between tasks that meta-training has learned from. In the pipeline that is returned
    the transformers are frozen, and `fit` adapts the last step only.

    Args:
        pipeline: Transformers and, as the last step, an `MTNetRegressor` or `MTNetClassifier`.
        X: Inputs of all groups.
        y: Targets.
        groups: Name of each row's task.

    Returns:
        A new pipeline; `fit` it to the rows of a task.
    """
    *steps, (name, model) = clone(pipeline).steps
    if not isinstance(model, FewShot):
        raise InputError(
            f"the last step of the pipeline is {type(model).__name__}: it must be an "
            "MTNetRegressor or MTNetClassifier"
        )
    frozen: list[tuple[str, Any]] = []
    for step, transformer in steps:
        if transformer is not None and transformer != "passthrough":
            X = transformer.fit_transform(X, y)
            frozen.append((step, FrozenEstimator(transformer)))
    last = (name, model.meta_fit(X, y, groups))
    return Pipeline([*frozen, last], memory=pipeline.memory, verbose=pipeline.verbose)
