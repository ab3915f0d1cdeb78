"""Few-shot learners by the habits of scikit-learn.

    model = MTNetRegressor().meta_fit(X, y, groups)   # many small tasks, once
    model.fit(X_new, y_new).predict(X_more)           # a new task, in milliseconds

`meta_fit` learns across groups, and keeps what it has learned in the parameter `learned`, so that
clones and pipelines have it too; `fit` adapts to the rows of one task.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets

from mtnet.errors import InputError
from mtnet.estimators.base import FewShot
from mtnet.estimators.learned import Numbers, Scale, scale_of


class MTNetRegressor(RegressorMixin, FewShot):
    """A regression that adapts to a new task from a handful of rows."""

    def meta_fit(self, X: Any, y: Any, groups: Any) -> "MTNetRegressor":
        """Learn across groups of rows, a task each.

        Args:
            X: Inputs, an array or a data frame of numbers and texts.
            y: Targets, numbers, one or more per row.
            groups: Name of each row's task.

        Returns:
            The estimator.
        """
        X, y, groups = self._rows(X, y, groups, y_numeric=True, multi_output=True)
        y = y.reshape(len(y), -1)
        scale = scale_of(y)
        return self._meta_fit(X, scale(y), groups, y.shape[1], scale)

    def fit(self, X: Any, y: Any) -> "MTNetRegressor":
        """Adapt to the rows of one task."""
        X, y = self._rows(X, y, y_numeric=True, multi_output=True)
        self.flat_ = y.ndim == 1
        y = y.reshape(len(y), -1)
        data = self._known().data
        if y.shape[1] != data.outputs:
            raise InputError(f"y has {y.shape[1]} columns; meta_fit saw {data.outputs}")
        return self._adapt(X, data.y(y), data.outputs)

    def predict(self, X: Any) -> Numbers:
        """Predict in the unit of the targets."""
        scaled = self._outputs(X)
        found = self.learned_.data.y.undo(scaled)
        return found[:, 0] if self.flat_ else found

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
        return self._meta_fit(X, own, groups, classes, Scale(np.zeros(1), np.ones(1)))

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
