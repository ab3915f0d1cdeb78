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
import optax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from mtnet.core.adapt import adapt, predict_compiled
from mtnet.core.trainer import meta_train
from mtnet.core.types import Batch, Learner
from mtnet.errors import InputError
from mtnet.estimators.learned import Learned, Numbers, Scale, learner_for, scale_of
from mtnet.files import arrays_of, fill_network
from mtnet.nets.spec import NetSpec, build_net
from mtnet.tasks.groups import group_tasks, select_groups, sort_by_group


class FewShot(BaseEstimator):
    """What regression and classification share."""

    _classes = False

    def __init__(
        self,
        method: str = "mt-net",
        width: int = 40,
        depth: int = 2,
        alpha: float = 0.05,
        steps: int = 5,
        shots: int = 10,
        queries: int = 10,
        iterations: int = 5_000,
        meta_batch: int = 25,
        beta: float = 1e-3,
        at_test: str = "expected",
        random_state: int = 0,
        learned: Learned | None = None,
    ):
        self.method = method
        self.width = width
        self.depth = depth
        self.alpha = alpha
        self.steps = steps
        self.shots = shots
        self.queries = queries
        self.iterations = iterations
        self.meta_batch = meta_batch
        self.beta = beta
        self.at_test = at_test
        self.random_state = random_state
        self.learned = learned

    def _plan(self, inputs: int, outputs: int) -> NetSpec:
        return NetSpec("mlp", (inputs,), outputs, self.width, self.depth)

    def _learner(self, inputs: int, outputs: int) -> Learner:
        inner = (("alpha", self.alpha), ("steps", self.steps), ("at_test", self.at_test))
        return learner_for(self._plan(inputs, outputs), self.method, self._classes, inner)

    def _meta_fit(self, X: Numbers, y: Numbers, groups: Any, outputs: int, scale: Scale) -> Any:
        x_scale = scale_of(X)
        rows, names = sort_by_group(x_scale(X), y, np.asarray(groups))
        enough = rows.count >= self.shots + self.queries
        if not enough.any():
            raise InputError(
                f"no group has the {self.shots} + {self.queries} rows that shots and queries need; "
                f"the largest has {rows.count.max()}"
            )
        self.left_out_ = [name for name, there in zip(names, enough, strict=True) if not there]
        kept = jax.tree.map(jnp.asarray, select_groups(rows, np.flatnonzero(enough).tolist()))
        theta = meta_train(
            self._learner(X.shape[1], outputs),
            lambda data: group_tasks(data, shots=self.shots, queries=self.queries),
            data=kept,
            iterations=self.iterations,
            meta_batch=self.meta_batch,
            optimiser=optax.cosine_decay_schedule(self.beta, self.iterations),
            key=jax.random.key(self.random_state),
            progress=False,
        ).theta
        made = (self.method, self.width, self.depth)
        self.learned = Learned(theta, x_scale, scale, outputs, made)
        return self

    def _known(self) -> Learned:
        if self.learned is None:
            raise NotFittedError(f"call meta_fit first: this {type(self).__name__} knows no tasks")
        return self.learned

    def _adapt(self, X: Numbers, y: Numbers, outputs: int) -> Any:
        learned = self._known()
        if X.shape[1] != len(learned.x.mean):
            raise ValueError(
                f"X has {X.shape[1]} features, but {type(self).__name__} was meta-fitted with "
                f"{len(learned.x.mean)}"
            )
        if learned.made != (self.method, self.width, self.depth):
            was = "method {}, width {}, depth {}".format(*learned.made)
            raise ValueError(f"meta_fit was done with {was}: call it again to change them")
        support = Batch(jnp.asarray(learned.x(X)), jnp.asarray(y))
        key = jax.random.key(self.random_state)
        made = self._learner(X.shape[1], outputs)
        self.model_: Any = adapt(made, learned.theta, support, key)
        return self

    def _outputs(self, X: Any) -> Numbers:
        check_is_fitted(self, "model_")
        X = validate_data(self, X, reset=False, dtype=np.float64)
        return np.asarray(predict_compiled(self.model_, jnp.asarray(self._known().x(X))))

    def __getstate__(self) -> Any:
        """For copies among processes: arrays only, since activations cannot be pickled."""
        state = dict(super().__getstate__())
        if "model_" in state:
            state["model_"] = arrays_of(self.model_)
        return state

    def __setstate__(self, state: Any) -> None:
        super().__setstate__(state)
        if "model_" in state:
            self._set_model(state["model_"])

    def _set_model(self, arrays: dict[str, Numbers]) -> None:
        """Be adapted, as these arrays say."""
        outputs = len(self.classes_) if self._classes else self._known().outputs
        self.model_ = fill_network(build_net(self._plan(self.n_features_in_, outputs)), arrays)


class MTNetRegressor(RegressorMixin, FewShot):
    """A regression that adapts to a new task from a handful of rows."""

    def meta_fit(self, X: Any, y: Any, groups: Any) -> "MTNetRegressor":
        """Learn across groups of rows, a task each."""
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True, multi_output=True)
        y = y.reshape(len(y), -1)
        scale = scale_of(y)
        return self._meta_fit(X, scale(y), groups, y.shape[1], scale)

    def fit(self, X: Any, y: Any) -> "MTNetRegressor":
        """Adapt to the rows of one task."""
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True, multi_output=True)
        self.flat_ = y.ndim == 1
        y = y.reshape(len(y), -1)
        learned = self._known()
        if y.shape[1] != learned.outputs:
            raise ValueError(f"y has {y.shape[1]} columns; meta_fit saw {learned.outputs}")
        return self._adapt(X, learned.y(y), learned.outputs)

    def predict(self, X: Any) -> Numbers:
        scaled = self._outputs(X)
        found = self._known().y.undo(scaled)
        return found[:, 0] if self.flat_ else found

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class MTNetClassifier(ClassifierMixin, FewShot):
    """A classifier that adapts to a new task, of any number of classes, from a few of each."""

    _classes = True

    def meta_fit(self, X: Any, y: Any, groups: Any) -> "MTNetClassifier":
        """Learn across groups of rows, a task each, whose classes are its own."""
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        groups, own = np.asarray(groups), np.zeros(len(y), np.int32)
        for group in np.unique(groups):
            own[groups == group] = np.unique(y[groups == group], return_inverse=True)[1]
        classes = max(int(own.max()) + 1, 2)
        return self._meta_fit(X, own, groups, classes, Scale(np.zeros(1), np.ones(1)))

    def fit(self, X: Any, y: Any) -> "MTNetClassifier":
        """Adapt to the rows of one task; its classes may be any."""
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self._known()
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"there is one class only, {self.classes_.tolist()[0]!r}: give two or more"
            )
        return self._adapt(X, labels.astype(np.int32), len(self.classes_))

    def predict_proba(self, X: Any) -> Numbers:
        return np.asarray(jax.nn.softmax(jnp.asarray(self._outputs(X)), axis=1))

    def predict(self, X: Any) -> Numbers:
        best = self._outputs(X).argmax(axis=1)
        return np.asarray(self.classes_[best])
