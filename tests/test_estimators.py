"""By the habits of scikit-learn: clones, pipelines, files."""

import jax
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import mtnet
from mtnet import InputError, MTNetClassifier, MTNetRegressor

SMALL = {"width": 8, "depth": 1, "iterations": 300, "meta_batch": 5, "queries": 5, "shots": 5}


@pytest.fixture(autouse=True)
def single_precision():
    with jax.enable_x64(False):
        yield


def lines(groups=12, rows=12, seed=0):
    """A slope for each group."""
    draw = np.random.default_rng(seed)
    X = draw.uniform(-1, 1, (groups * rows, 2))
    group = np.repeat(np.arange(groups), rows)
    slope = draw.uniform(-4, 4, groups)
    return X, 30 + 5 * slope[group] * X[:, 0], group


def halves(groups=12, rows=12, seed=0):
    """A direction for each group, which tells its classes apart."""
    X, _, group = lines(groups, rows, seed)
    turn = np.random.default_rng(seed).choice([-1, 1], groups)
    return X, np.where(turn[group] * X[:, 0] > 0, "up", "down"), group


@pytest.fixture(scope="module")
def regressor():
    with jax.enable_x64(False):
        return MTNetRegressor(**SMALL).meta_fit(*lines())


@pytest.fixture(scope="module")
def classifier():
    with jax.enable_x64(False):
        return MTNetClassifier(**SMALL).meta_fit(*halves())


def test_a_new_task_is_learned(regressor, classifier):
    X, y, _ = lines(groups=1, rows=40, seed=9)
    assert clone(regressor).fit(X[:10], y[:10]).score(X[10:], y[10:]) > 0.5
    X, y, _ = halves(groups=1, rows=40, seed=9)
    fitted = clone(classifier).fit(X[:10], y[:10])
    assert fitted.score(X[10:], y[10:]) > 0.7
    p = fitted.predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-5)
    assert (fitted.classes_[p.argmax(1)] == fitted.predict(X)).all()


def test_a_task_may_have_more_classes_than_any_before(classifier):
    X, _, _ = lines(groups=1, rows=20, seed=9)
    y = np.digitize(X[:, 0], [-0.5, 0, 0.5]) + 7
    fitted = clone(classifier).fit(X, y)
    assert fitted.predict_proba(X).shape == (20, 4)
    assert set(fitted.predict(X)) <= {7, 8, 9, 10}


@pytest.mark.parametrize("kind", ["regressor", "classifier"])
def test_what_is_saved_answers_the_same(kind, request, tmp_path):
    """Before any task, and after one; cut short it is refused."""
    estimator = request.getfixturevalue(kind)
    X, y, _ = (lines if kind == "regressor" else halves)(groups=1, rows=10, seed=3)
    path = tmp_path / "model.safetensors"
    mtnet.save(clone(estimator), path)
    again = mtnet.load(path).fit(X, y)
    fitted = clone(estimator).fit(X, y)
    assert (again.predict(X) == fitted.predict(X)).all()
    mtnet.save(fitted, path)
    loaded = mtnet.load(path)
    assert type(loaded) is type(fitted)
    assert (loaded.predict(X) == fitted.predict(X)).all()
    assert loaded.get_params().keys() == fitted.get_params().keys()
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(InputError, match=r"model\.safetensors"):
        mtnet.load(path)


def test_wrong_use_is_told(regressor, classifier):
    X, y, group = lines()
    with pytest.raises(NotFittedError, match="call meta_fit first"):
        MTNetRegressor().fit(X, y)
    with pytest.raises(ValueError, match="3 features"):
        clone(regressor).fit(np.ones((4, 3)), np.ones(4))
    with pytest.raises(ValueError, match="one class only, 'a'"):
        clone(classifier).fit(X[:3], ["a", "a", "a"])
    with pytest.raises(InputError, match="the largest has 12"):
        MTNetRegressor(shots=100).meta_fit(X, y, group)
    for kind in (MTNetRegressor, MTNetClassifier):
        with pytest.raises(InputError, match="144 rows and 5 groups: give one each"):
            kind(**SMALL).meta_fit(X, np.round(y), group[:5])
