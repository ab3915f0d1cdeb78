"""Sine waves and polynomials are what they are said to be."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.optimize import minimize_scalar

import mtnet
from mtnet import InputError
from mtnet.tasks import FAMILIES

sizes = st.integers(1, 30)
every_family = pytest.mark.parametrize(
    "name", [name for name, entry in FAMILIES.items() if not entry.splits]
)


def draw(family, tasks=1, seed=0):
    """All x and all y of some tasks, (tasks, examples), support and query together."""
    episodes = jax.vmap(family.sample)(jax.random.split(jax.random.key(seed), tasks))
    x, y = (jnp.concatenate([getattr(part, a) for part in episodes], axis=1)[..., 0] for a in "xy")
    return np.asarray(x), np.asarray(y)


@every_family
def test_a_task_is_a_function_of_its_key(name):
    family = FAMILIES[name].make()
    one, same, other = (family.sample(jax.random.key(s)) for s in (0, 0, 1))
    assert jax.tree.all(jax.tree.map(jnp.array_equal, one, same))
    assert not jnp.allclose(one.support.x, other.support.x)
    assert not jnp.allclose(one.support.x, one.query.x)


@every_family
@given(shots=sizes, queries=sizes)
def test_tasks_have_the_size_asked_for(name, shots, queries):
    family = FAMILIES[name].make(shots=shots, queries=queries)
    episode = jax.eval_shape(family.sample, jax.random.key(0))
    for batch, size in zip(episode, (shots, queries), strict=True):
        assert batch.x.shape == batch.y.shape == (size, 1)


@every_family
@pytest.mark.parametrize("name_of_size", ["shots", "queries"])
@given(size=st.integers(-3, 0))
def test_tasks_without_examples_are_refused(name, name_of_size, size):
    with pytest.raises(InputError, match=f"{name_of_size} must be at least 1"):
        FAMILIES[name].make(**{name_of_size: size})


def test_inputs_fill_their_range():
    for family, x_max in (
        (mtnet.sine(), 5),
        (mtnet.polynomial(), 5),
        (mtnet.polynomial(x_max=2.0), 2),
    ):
        x, _ = draw(family, tasks=200)
        assert 0.99 * x_max < x.max() <= x_max
        assert -x_max <= x.min() < -0.99 * x_max


def test_sine_waves_have_the_published_heights_frequencies_and_phases():
    """Recover A, w, b of y = A sin(w x + b): the fit is exact and within range."""
    x, y = draw(mtnet.sine(20, 20), tasks=40)

    def fit(w, x, y):
        basis = np.column_stack([np.sin(w * x), np.cos(w * x)])
        c, *_ = np.linalg.lstsq(basis, y, rcond=None)
        return np.sum((basis @ c - y) ** 2), np.hypot(*c), np.arctan2(c[1], c[0])

    found = []
    for one in zip(x, y, strict=True):
        w = minimize_scalar(
            lambda w, one=one: fit(w, *one)[0], bounds=(0.79, 1.21), options={"xatol": 1e-9}
        ).x
        residual, *rest = fit(w, *one)
        assert residual < 1e-8
        found.append((rest[0], w, rest[1]))
    found = np.array(found)
    low, high = np.array([[0.1, 0.8, 0.0], [5.0, 1.2, np.pi]])
    assert np.all((low - 1e-6 < found) & (found < high + 1e-6))
    # Uniform: the mean of 40 draws lies within 4 standard errors of the middle.
    assert np.all(abs(found.mean(0) - (low + high) / 2) < 4 * (high - low) / np.sqrt(12 * 40))


@pytest.mark.parametrize("order", range(4))
@pytest.mark.parametrize("damp_coefficients", [False, True])
def test_polynomials_are_of_their_order(order, damp_coefficients):
    """The fit of that order is exact, one of lower order is not, coefficients fill [-1, 1]."""
    family = mtnet.polynomial(order, 10, 10, damp_coefficients=damp_coefficients, x_max=2.0)
    coefficients = []
    for x, y in zip(*draw(family, tasks=60), strict=True):
        c = np.polynomial.polynomial.polyfit(x, y, order)
        np.testing.assert_allclose(np.polynomial.polynomial.polyval(x, c), y, atol=1e-9)
        coefficients.append(c)
        if order:
            _, (left, *_) = np.polynomial.polynomial.polyfit(x, y, order - 1, full=True)
            assert left.item() > 1e-10
    largest = np.abs(coefficients).max(0) * (
        2.0 ** np.arange(order + 1) if damp_coefficients else 1
    )
    assert np.all((largest > 0.85) & (largest <= 1 + 1e-9))


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (partial(mtnet.polynomial, -1), "order"),
        (partial(mtnet.polynomial, x_max=0.0), "x_max"),
        (partial(mtnet.polynomial, x_max=float("nan")), "x_max"),
        (partial(mtnet.polynomial, x_max=float("inf")), "x_max"),
    ],
    ids=["order", "zero", "nan", "inf"],
)
def test_impossible_families_are_refused(make, word):
    with pytest.raises(InputError, match=word):
        make()
