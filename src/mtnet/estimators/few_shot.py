"""Few-shot learners by the habits of scikit-learn.

    model = MTNetRegressor().meta_fit(X, y, groups)   # many small tasks, once
    model.fit(X_new, y_new).predict(X_more)           # a new task, in milliseconds

`meta_fit` learns across groups, and keeps what it has learned in the parameter `learned`, so that
clones and pipelines have it too; `fit` adapts to the rows of one task.
"""

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets

from mtnet.core.conformal import Calibration, few_tasks, for_rows, half_width, task_scale
from mtnet.errors import InputError
from mtnet.estimators.base import FewShot
from mtnet.estimators.learned import Numbers, Scale, scale_of


class MTNetRegressor(RegressorMixin, FewShot):
    """A regression that adapts to a new task from a handful of rows."""

    def meta_fit(self, X: Any, y: Any, groups: Any, clusters: Any = None) -> "MTNetRegressor":
        """Learn across groups of rows, a task each; some are held out to calibrate intervals.

        Args:
            X: Inputs, an array or a data frame of numbers and texts.
            y: Targets, numbers, one or more per row.
            groups: Name of each row's task.
            clusters: Name of each row's cluster, if tasks of one cluster are more similar than
                others, such as the years of one city; whole clusters are held out. Default: a
                cluster per task.

        Returns:
            The estimator.
        """
        more = (groups,) if clusters is None else (groups, clusters)
        X, y, groups, *more = self._rows(X, y, *more, y_numeric=True, multi_output=True)
        y = y.reshape(len(y), -1)
        scale = scale_of(y)
        own = more[0] if more else None
        return self._meta_fit(X, scale(y), groups, own, y.shape[1], scale)

    def fit(self, X: Any, y: Any) -> "MTNetRegressor":
        """Adapt to the rows of one task."""
        X, y = self._rows(X, y, y_numeric=True, multi_output=True)
        self.flat_ = y.ndim == 1
        y = y.reshape(len(y), -1)
        data = self._known().data
        if y.shape[1] != data.outputs:
            raise InputError(f"y has {y.shape[1]} columns; meta_fit saw {data.outputs}")
        return self._adapt(X, data.y(y), data.outputs)

    def predict(
        self, X: Any, return_std: bool = False, return_interval: float | None = None
    ) -> Any:
        """Predict in the unit of the targets.

        A row of a new task is in its interval with at least the asked probability, on average over
        tasks, if new tasks are like those that `meta_fit` held out.

        Args:
            X: Inputs.
            return_std: Also return the standard deviations of the errors, estimated from the held-
                out groups with as many support rows, and from the errors on the support rows.
            return_interval: Also return the lower and upper ends of prediction intervals of this
                level, such as 0.9.

        Returns:
            The predictions; with `return_std` (predictions, standard deviations), with
            `return_interval` (predictions, lower ends, upper ends).
        """
        if return_std and return_interval is not None:
            raise InputError("give return_std or return_interval, not both")
        found, data = self._outputs(X), self.learned_.data
        predicted = self._shaped(data.y.undo(found))
        if not return_std and return_interval is None:
            return predicted
        calibration = self._calibration()
        size = calibration.std if return_std else half_width(calibration, return_interval or 0.0)
        size = size * task_scale(calibration, self.support_squares_)
        if not np.isfinite(size).all():
            raise InputError("adaptation to held-out groups gives nan or inf: set a smaller alpha")
        apart = self._shaped(np.broadcast_to(size * data.y.spread, found.shape).copy())
        if return_std:
            return predicted, apart
        if message := few_tasks(calibration, float(return_interval or 0)):
            warnings.warn(message, stacklevel=2)
        return predicted, predicted - apart, predicted + apart

    def _shaped(self, values: Numbers) -> Numbers:
        """As a vector, if the targets of `fit` were one."""
        return values[:, 0] if self.flat_ else values

    def _calibration(self) -> Calibration:
        """Of the held-out groups, from as many support rows as `fit` had, or fewer."""
        learned = self.learned_
        if not learned.calibration:
            raise InputError(
                "meta_fit held out no groups, which intervals need: give it 54 groups or more, or "
                "set held_out, such as 0.2"
            )
        if learned.at_test != self.at_test:
            raise InputError(
                f"intervals were calibrated with at_test={learned.at_test!r}: set it again, or "
                "call meta_fit"
            )
        return learned.calibration[for_rows(learned.calibration, self.support_rows_)]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class MTNetClassifier(ClassifierMixin, FewShot):
    """A classifier that adapts to a new task, of any number of classes, from a few of each."""

    _classes = True

    def meta_fit(self, X: Any, y: Any, groups: Any) -> "MTNetClassifier":
        """Learn across groups of rows, a task each, whose classes are its own.

        Args:
            X: Inputs, an array or a data frame of numbers and texts.
            y: Classes.
            groups: Name of each row's task.

        Returns:
            The estimator.
        """
        X, y, groups = self._rows(X, y, groups)
        check_classification_targets(y)
        groups, own = np.asarray(groups), np.zeros(len(y), np.int32)
        for group in np.unique(groups):
            own[groups == group] = np.unique(y[groups == group], return_inverse=True)[1]
        classes = max(int(own.max()) + 1, 2)
        return self._meta_fit(X, own, groups, None, classes, Scale(np.zeros(1), np.ones(1)))

    def fit(self, X: Any, y: Any) -> "MTNetClassifier":
        """Adapt to the rows of one task; its classes may be any."""
        X, y = self._rows(X, y)
        check_classification_targets(y)
        self._known()
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise InputError(
                f"there is one class only, {self.classes_.tolist()[0]!r}: give two or more"
            )
        return self._adapt(X, labels.astype(np.int32), len(self.classes_))

    def predict_proba(self, X: Any) -> Numbers:
        """Probabilities of the classes, in the order of `classes_`."""
        return np.asarray(jax.nn.softmax(jnp.asarray(self._outputs(X)), axis=1))

    def predict(self, X: Any) -> Numbers:
        """The most probable classes."""
        best = self._outputs(X).argmax(axis=1)
        return np.asarray(self.classes_[best])
