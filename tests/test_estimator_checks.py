"""Estimators on data as it comes, in searches and pipelines, and by scikit-learn's own checks."""

from dataclasses import replace

import jax
import numpy as np
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import mtnet
from mtnet import InputError, MTNetClassifier, MTNetRegressor, meta_fit_pipeline

TINY = {
    "method": "maml",
    "width": 4,
    "depth": 1,
    "steps": 1,
    "shots": 1,
    "queries": 1,
    "iterations": 2,
    "meta_batch": 2,
}
LEVELS = np.array(["brick", "steel", "wood"])


@pytest.fixture(autouse=True)
def single_precision():
    with jax.enable_x64(False):
        yield


def numbers(rows=24, seed=0):
    """Inputs far from 0, targets, and groups of equal size."""
    draw = np.random.default_rng(seed)
    X = draw.normal([50, -3, 0], [10, 0.1, 1], (rows, 3))
    return X, 7 + 2 * X[:, 0], np.repeat(np.arange(rows // 6), 6)


def mixed(rows=24, seed=0):
    """Two columns of numbers and one of texts."""
    X, y, groups = numbers(rows, seed)
    X = X.astype(object)
    X[:, 1] = LEVELS[np.arange(rows) % 3]
    return X, y, groups


@pytest.fixture(scope="module")
def regressor():
    with jax.enable_x64(False):
        return MTNetRegressor(**TINY).meta_fit(*numbers())


@pytest.fixture(scope="module")
def on_mixed():
    with jax.enable_x64(False):
        return MTNetRegressor(**TINY, missing="mean").meta_fit(*mixed())


def answers(model, X, y):
    return clone(model).fit(X[:6], y[:6]).predict(X)


def test_a_category_is_its_one_hot_columns(on_mixed):
    X, _, _ = mixed()
    one_hot = (X[:, [1]] == LEVELS).astype(float)
    levels = on_mixed.learned.data.columns[1].levels
    assert levels == tuple(LEVELS)
    x = np.asarray(on_mixed.learned.rows.x)
    np.testing.assert_array_equal(x[:, 1:4], one_hot)
    assert x.shape == (24, 5)


def test_texts_of_numbers_and_tables_are_read_alike(on_mixed):
    """Objects, NumPy's texts, and a data frame with names."""
    X, y, groups = mixed()
    expected = answers(on_mixed, X, y)
    np.testing.assert_allclose(answers(on_mixed, X.astype(str), y), expected, rtol=1e-5)
    names = ["volts", "housing", "load"]
    columns = [X[:, 0].astype(float), X[:, 1].astype(str), X[:, 2].astype(float)]
    table = pa.table(dict(zip(names, columns, strict=True)))
    named = MTNetRegressor(**TINY).meta_fit(table, y, groups)
    np.testing.assert_allclose(named.fit(table[:6], y[:6]).predict(table), expected, rtol=1e-5)
    with pytest.raises(InputError, match="the same columns in the same order"):
        clone(named).fit(table.select(names[::-1]), y)


def test_a_missing_number_is_the_mean_and_a_missing_level_zeros(on_mixed):
    X, y, _ = mixed()
    for gap in (None, np.nan):
        holes = X.copy()
        holes[8, 0] = gap
        filled = X.copy()
        filled[8, 0] = on_mixed.learned.data.columns[0].mean
        assert (answers(on_mixed, holes, y) == answers(on_mixed, filled, y)).all()
        holes[8, 1] = gap
        assert np.isfinite(answers(on_mixed, holes, y)).all()


def test_rows_without_a_target_are_skipped_and_counted(on_mixed):
    X, y, _ = mixed()
    holes = np.concatenate([y[:6], [np.nan]])
    with pytest.warns(UserWarning, match="1 rows without a target are skipped"):
        fitted = clone(on_mixed).fit(X[:7], holes)
    assert (fitted.predict(X) == answers(on_mixed, X, y)).all()
    with pytest.raises(ValueError, match="NaN"):
        clone(on_mixed).set_params(missing="refuse").fit(X[:7], holes)


def test_what_cannot_be_read_is_one_line(on_mixed, regressor):
    X, y, groups = mixed()
    fitted = clone(on_mixed).fit(X[:6], y[:6])

    def changed(column, value):
        other = X.copy()
        other[8, column] = value
        return other

    with pytest.raises(InputError, match=r"row 9, column 'x1': 'clay' is a level that meta_fit"):
        fitted.predict(changed(1, "clay"))
    with pytest.raises(InputError, match="row 9, column 'x0': '---' is not a number"):
        fitted.predict(changed(0, "---"))
    with pytest.raises(InputError, match="row 9, column 'x0': inf is too large"):
        fitted.predict(changed(0, np.inf))
    with pytest.raises(InputError, match=r'row 9, column \'x0\': .*missing="mean"'):
        fitted.set_params(missing="refuse").predict(changed(0, np.nan))
    with pytest.raises(InputError, match="'---' is not a number, as 1 of 24 values"):
        MTNetRegressor(**TINY).meta_fit(changed(0, "---"), y, groups)
    names = np.array([[f"row {i}"] for i in range(24)], object)
    with pytest.raises(InputError, match="24 different texts in 24 rows"):
        MTNetRegressor(**TINY).meta_fit(names, y, groups)
    with pytest.raises(InputError, match='must be "refuse" or "mean"'):
        clone(regressor).set_params(missing="zero").fit(*numbers()[:2])


def test_a_network_that_is_not_finite_is_no_model(regressor):
    X, y, groups = numbers()
    with pytest.raises(InputError, match=r"y, row 1: .* is too far from the values of meta_fit"):
        clone(regressor).fit(X[:6], 1e200 * y[:6])
    with pytest.raises(InputError, match=r"1e.200 is too large"):
        clone(regressor).meta_fit(X, np.where(y > 0, 1e200, y), groups)
    with pytest.raises(InputError, match="meta-training gives nan or inf: set a smaller beta"):
        clone(regressor).set_params(alpha=1e38).fit(X[:6], y[:6])
    learned = regressor.learned
    huge = replace(learned, theta=jax.tree.map(lambda a: 1e30 * a, learned.theta))
    with pytest.raises(InputError, match="adaptation gives nan or inf: set a smaller alpha"):
        clone(regressor).set_params(learned=huge).fit(X[:6], y[:6])


def test_verbose_says_how_columns_are_read(capfd):
    MTNetRegressor(**TINY, missing="mean", verbose=1).meta_fit(*mixed())
    captured = capfd.readouterr()
    assert "x1: category of 3: brick, steel, wood" in captured.out
    assert "x0: number, mean" in captured.out
    assert "iteration 2/2" in captured.err
    MTNetRegressor(**TINY).meta_fit(*numbers())
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "changes",
    [{"width": 5}, {"method": "mt-net"}, {"iterations": 3}, {"alpha": 0.2}, {"random_state": 7}],
    ids=str,
)
def test_fit_uses_the_parameters_of_now(regressor, changes):
    """A changed parameter gives what meta_fit with this parameter gives."""
    X, y, groups = numbers()
    fresh = MTNetRegressor(**TINY | changes).meta_fit(X, y, groups)
    again = clone(regressor).set_params(**changes)
    assert (answers(again, X, y) == answers(fresh, X, y)).all()
    assert (answers(again, X, y) != answers(regressor, X, y)).any()


def test_meta_fit_forgets_the_task(regressor):
    X, y, groups = numbers()
    model = clone(regressor).fit(X[:6], y[:6]).meta_fit(X, y, groups)
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_a_search_over_any_parameter_is_finite(regressor, tmp_path):
    """Each candidate is meta-trained once, for all folds and for the final fit."""
    X, y, _ = numbers()
    model = clone(regressor)
    grid = {"width": np.array([4, 5]), "at_test": ["expected", "sample"]}
    search = GridSearchCV(model, grid, cv=2, error_score="raise").fit(X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert {s.width for s in regressor.learned.others} >= {5}
    best = search.best_estimator_
    mtnet.save(best, tmp_path / "best")
    loaded = mtnet.load(tmp_path / "best")
    assert (loaded.predict(X) == best.predict(X)).all()
    with pytest.raises(InputError, match=r"width=\d, and a file does not hold its rows"):
        loaded.set_params(width=9).fit(X, y)


def test_parameters_that_nothing_was_learned_with_are_not_saved(regressor, tmp_path):
    with pytest.raises(InputError, match="changed since meta_fit"):
        mtnet.save(clone(regressor).set_params(width=9), tmp_path / "model")


def test_a_file_keeps_categories_and_gaps(on_mixed, tmp_path):
    X, y, _ = mixed()
    fitted = clone(on_mixed).fit(X[:6], y[:6])
    mtnet.save(fitted, tmp_path / "model")
    X[8, 0], X[9, 1] = np.nan, None
    assert (mtnet.load(tmp_path / "model").predict(X) == fitted.predict(X)).all()


@pytest.mark.parametrize("scaler", [StandardScaler(), MinMaxScaler()], ids=["standard", "minmax"])
def test_a_scaler_before_it_changes_nothing(regressor, scaler):
    """Linear scaling of the inputs of all tasks cancels in the scaling of meta_fit."""
    X, y, groups = numbers()
    pipeline = meta_fit_pipeline(make_pipeline(scaler, MTNetRegressor(**TINY)), X, y, groups)
    np.testing.assert_allclose(answers(pipeline, X, y), answers(regressor, X, y), rtol=1e-3)
    grid = {"mtnetregressor__width": [4, 5]}
    search = GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(X[:12], y[:12])
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_a_scaler_of_one_task_is_told(regressor):
    X, y, groups = numbers()
    with pytest.warns(UserWarning, match="use meta_fit_pipeline"):
        make_pipeline(StandardScaler(), clone(regressor)).fit(X[:6], y[:6])
    with pytest.raises(InputError, match="last step of the pipeline is StandardScaler"):
        meta_fit_pipeline(make_pipeline(StandardScaler()), X, y, groups)


# scikit-learn's checks hand an estimator data of many widths, and no groups. The deviations from
# its protocol are these two; every check must pass otherwise:
# - `fit` needs `meta_fit` first. The classes below call it on the rows that `fit` is given.
# - They declare a poor score: two iterations across one group teach nothing that could be adapted
#   well. scikit-learn then leaves out the comparison of scores with its thresholds.


LEARNED: dict = {}


class Itself:
    """Learns across one group, of the rows that it is first fitted to with so many columns."""

    def _known(self):
        return self._own

    def fit(self, X, y):
        base = type(self).__mro__[2]
        fresh = base(**TINY)
        checks = {} if base is MTNetClassifier else {"y_numeric": True, "multi_output": True}
        rows, targets = fresh._rows(X, y, **checks)
        kind = base, rows.shape[1:], targets.shape[1:]
        if kind not in LEARNED:
            twice = np.concatenate([rows, rows]), np.concatenate([targets, targets])
            LEARNED[kind] = fresh.meta_fit(*twice, np.zeros(2 * len(rows))).learned
        self._own = LEARNED[kind]
        return super().fit(X, y)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        (tags.classifier_tags or tags.regressor_tags).poor_score = True
        return tags


class Regressor(Itself, MTNetRegressor):
    pass


class Classifier(Itself, MTNetClassifier):
    pass


@parametrize_with_checks([Regressor(**TINY), Classifier(**TINY)])
def test_scikit_learn_approves(estimator, check, unchecked):
    check(estimator)
