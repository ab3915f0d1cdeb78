"""What regression and classification share: parameters, inputs, meta-training, adaptation."""

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils import _safe_indexing, check_consistent_length
from sklearn.utils.validation import check_is_fitted, validate_data

from mtnet.core.adapt import adapt, predict_compiled
from mtnet.core.types import Batch
from mtnet.errors import InputError
from mtnet.estimators.columns import (
    check_missing,
    columns_of,
    describe,
    encode_columns,
    is_standardised,
    plain,
)
from mtnet.estimators.learned import (
    Known,
    Learned,
    Numbers,
    Scale,
    Settings,
    check_finite,
    large_enough,
    learn,
    learner_for,
    plan_of,
)
from mtnet.files import arrays_of, fill_network
from mtnet.nets.spec import build_net
from mtnet.tasks.groups import sort_by_group
from mtnet.userdata.schema import Missing, is_present

STANDARDISED = (
    "the inputs are standardised by the rows of this task alone, which meta_fit did not see: in a "
    "pipeline use meta_fit_pipeline, otherwise the scaler of the rows of meta_fit"
)
DIVERGED = (
    "adaptation gives nan or inf: set a smaller alpha, and check that X and y have the units of "
    "meta_fit"
)
UNCHECKED: dict[str, Any] = {"dtype": None, "ensure_all_finite": False}
"""Inputs may be text, and missing values are checked by column."""


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
        missing: Missing = "refuse",
        verbose: int = 0,
        random_state: int = 0,
        held_out: float | None = None,
        learned: Learned | None = None,
    ):
        """Set the parameters.

        `fit` uses the parameters that are set when it is called. If one of those that `meta_fit`
        depends on has changed since (all but `at_test`, `missing` and `verbose`), `fit` first
        meta-trains again on the rows of `meta_fit`.

        Args:
            method: Name of the method, as in `mtnet list methods`.
            width: Activations of a hidden layer.
            depth: Hidden layers.
            alpha: Step size of adaptation.
            steps: Steps of adaptation.
            shots: Support rows per task in meta-training.
            queries: Query rows per task in meta-training.
            iterations: Meta-steps.
            meta_batch: Tasks per meta-step.
            beta: Step size of meta-training, at its start.
            at_test: Masks of `fit`: "sample", "expected" or "threshold".
            missing: "refuse": missing inputs are an error. "mean": a missing number is replaced by
                the mean of `meta_fit`, a missing category is encoded as zeros, and rows without a
                target are skipped, with a warning.
            verbose: 1: print how columns are read, and the progress of meta-training.
            random_state: Random seed.
            held_out: Fraction of the groups that `meta_fit` does not train on, for the intervals
                of a regression. Default: a tenth, but at least 9, of 54 groups or more; otherwise
                none.
            learned: What an earlier `meta_fit` has learned.
        """
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
        self.missing = missing
        self.verbose = verbose
        self.random_state = random_state
        self.held_out = held_out
        self.learned = learned

    def _settings(self) -> Settings:
        return Settings(*(getattr(self, name) for name in Settings._fields))

    def _rows(self, X: Any, y: Any, *more: Any, **checks: Any) -> Any:
        """X, y and more, checked; without the rows that have no target, if `missing` says so."""
        check_missing(self.missing)
        if self.missing == "mean" and y is not None and np.ndim(y):
            X, y, more = _with_targets(X, y, more)
        X, y = validate_data(self, X, y, **UNCHECKED, **checks)
        for groups in more:
            if len(groups) != len(y):
                raise InputError(f"there are {len(y)} rows and {len(groups)} groups: give one each")
        return plain(X), y, *more

    def _meta_fit(
        self, X: Numbers, y: Numbers, groups: Any, clusters: Any, outputs: int, scale: Scale
    ) -> Any:
        named = hasattr(self, "feature_names_in_")
        names = list(self.feature_names_in_) if named else [f"x{i}" for i in range(X.shape[1])]
        columns = columns_of(X, names)
        if self.verbose:
            print(describe(columns, X))
        rows, tasks = sort_by_group(encode_columns(columns, X, self.missing), y, np.asarray(groups))
        settings = self._settings()
        standardised = is_standardised(X[np.asarray(groups) == tasks[0]])
        data = Known(columns, named, scale, outputs, self._classes, standardised)
        enough = large_enough(rows, settings)
        self.skipped_ = [name for name, there in zip(tasks, enough, strict=True) if not there]
        if self.verbose and self.skipped_:
            print(f"{len(self.skipped_)} of {len(tasks)} groups have too few rows: skipped")
        own = None if clusters is None else clusters_of(clusters, groups, tasks)
        self.learned = learn(
            Learned(None, settings, data, rows, own, self.at_test), bool(self.verbose)
        )
        for name in ("model_", "learned_"):  # an earlier task was adapted to from other theta
            self.__dict__.pop(name, None)
        return self

    def _known(self) -> Learned:
        if self.learned is None:
            raise NotFittedError(f"call meta_fit first: this {type(self).__name__} knows no tasks")
        return self.learned

    def _adapt(self, X: Numbers, y: Numbers, outputs: int) -> Any:
        known = self._known()
        self._check_columns(X, known)
        x = encode_columns(known.data.columns, X, self.missing)
        if is_standardised(X) and not known.data.standardised:
            warnings.warn(STANDARDISED, stacklevel=3)
        self.learned_ = known.with_settings(self._settings(), bool(self.verbose))
        made = learner_for(self.learned_.settings, known.data, outputs, self.at_test)
        key = jax.random.key(self.random_state)
        support = Batch(jnp.asarray(x), jnp.asarray(y))
        model = adapt(made, self.learned_.theta, support, key)
        check_finite(model, DIVERGED)
        self.support_rows_ = len(x)
        if not self._classes:
            residuals = np.asarray(predict_compiled(model, support.x)) - y
            self.support_squares_ = np.mean(np.square(residuals.astype(np.float64)), axis=0)
        self.model_: Any = model
        return self

    def _check_columns(self, X: Numbers, known: Learned) -> None:
        """The columns must be those of meta_fit, in the same order."""
        columns = known.data.columns
        if X.shape[1] != len(columns):
            raise InputError(
                f"X has {X.shape[1]} features, but {type(self).__name__} was meta-fitted with "
                f"{len(columns)}"
            )
        names, wanted = getattr(self, "feature_names_in_", None), [c.name for c in columns]
        if known.data.named and names is not None and names.tolist() != wanted:
            raise InputError(
                f"the columns of X are {', '.join(names)}, those of meta_fit {', '.join(wanted)}: "
                "give the same columns in the same order"
            )

    def _outputs(self, X: Any) -> Numbers:
        check_is_fitted(self, "model_")
        X = plain(validate_data(self, X, reset=False, **UNCHECKED))
        x = encode_columns(self.learned_.data.columns, X, self.missing)
        return np.asarray(predict_compiled(self.model_, jnp.asarray(x)))

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
        outputs = len(self.classes_) if self._classes else None
        plan = plan_of(self.learned_.settings, self.learned_.data, outputs)
        self.model_ = fill_network(build_net(plan), arrays)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing == "mean"
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags


def clusters_of(clusters: Any, groups: Any, names: list[Any]) -> Numbers:
    """The number of each group's cluster; a group that is in two is an InputError."""
    groups, own = np.asarray(groups), np.unique(np.asarray(clusters), return_inverse=True)[1]
    found = []
    for name in names:
        inside = np.unique(own[groups == name])
        if len(inside) > 1:
            raise InputError(f"group {name!r} is in {len(inside)} clusters: it must be in one")
        found.append(inside[0])
    return np.array(found)


def _with_targets(X: Any, y: Any, more: tuple[Any, ...]) -> tuple[Any, Any, tuple[Any, ...]]:
    """The rows whose target is not missing; a warning counts the others."""
    check_consistent_length(X, y, *more)
    targets = np.asarray(y)
    there = np.all([is_present(c) for c in targets.reshape(len(targets), -1).T], axis=0)
    if there.all():
        return X, y, more
    warnings.warn(f"{int((~there).sum())} rows without a target are skipped", stacklevel=4)
    rows = np.flatnonzero(there)
    X, y = _safe_indexing(X, rows), _safe_indexing(y, rows)
    return X, y, tuple(_safe_indexing(item, rows) for item in more)
