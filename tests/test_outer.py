"""Meta-training and evaluation."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.stats
from helpers import assert_close, differ, shaken, small_episode, small_net
from hypothesis import given, strategies as st

import mtnet
from mtnet import InputError, evaluate, summarise
from mtnet.core.evaluate import DIVERGED_ABOVE, over_seeds
from mtnet.core.outer import init_state, meta_gradient, run_meta_steps

KEY = jax.random.key(0)
FAMILY = mtnet.sine(5, 5)
ADAM = optax.adam(1e-2)


def learner(method=mtnet.mt_net, **options):
    net = eqx.nn.MLP(1, 1, 8, 1, key=jax.random.key(1))
    return method(net, **{"alpha": 0.05} | options)


def trained(iterations=4, key=KEY, **options):
    return mtnet.meta_train(
        learner(), FAMILY, iterations=iterations, meta_batch=6, optimiser=ADAM, key=key, **options
    )


def test_parts_of_a_meta_batch_add_up():
    """The meta-gradient does not depend on how many tasks are taken at once."""
    one = learner()
    theta, keys = shaken(one.init(KEY)), jax.random.split(KEY, 6)

    def gradient(tasks_per_vmap):
        return jax.jit(lambda t, k: meta_gradient(one, FAMILY, t, k, tasks_per_vmap))(theta, keys)

    together = gradient(None)
    assert jnp.isfinite(together[0])
    assert_close(gradient(2), together)


@pytest.mark.parametrize("tasks_per_vmap", [4, 0, -1])
def test_parts_must_divide_the_meta_batch(tasks_per_vmap):
    one = learner()
    with pytest.raises(InputError, match="tasks_per_vmap"):
        meta_gradient(one, FAMILY, one.init(KEY), jax.random.split(KEY, 6), tasks_per_vmap)


def test_meta_training_is_a_function_of_its_key():
    by_key = jax.jit(lambda key: trained(key=key).theta)
    assert not differ(by_key(KEY), by_key(KEY), by=0)
    assert differ(by_key(KEY), by_key(jax.random.key(1)), by=1e-4)


def test_meta_training_goes_on_where_it_stopped():
    """Two stretches of iterations are one long one, bit for bit."""
    one = learner()

    @eqx.filter_jit
    def go_on(state, iterations):
        return run_meta_steps(one, FAMILY, ADAM, state, KEY, iterations=iterations, meta_batch=2)

    state = init_state(one, ADAM, KEY)
    whole, losses = go_on(state, 4)
    half, first = go_on(state, 2)
    rest, second = go_on(half, 2)
    assert eqx.tree_equal(whole, rest)
    np.testing.assert_array_equal(losses, jnp.concatenate([first, second]))
    assert whole.iteration == 4


def assert_same(one, other):
    """Two results of meta-training, bit for bit."""
    plain = lambda result: jax.tree.map(  # noqa: E731
        lambda a: jax.random.key_data(a) if jnp.issubdtype(a.dtype, jax.dtypes.prng_key) else a,
        result,
    )
    assert eqx.tree_equal(plain(one), plain(other))


def test_resumed_training_equals_one_long_training():
    """Bit for bit, wherever it is cut into chunks."""
    one = learner()
    train = partial(mtnet.meta_train, one, FAMILY, meta_batch=3, optimiser=1e-2)
    whole = train(iterations=5, key=KEY)
    first = train(iterations=2, key=KEY)
    assert_same(whole, train(iterations=3, resume=first))
    assert_same(whole, train(iterations=5, key=KEY, report_every=2, callback=print))
    assert whole.losses.shape == (5,)
    assert whole.state.iteration == 5
    with pytest.raises(InputError, match="remove key"):
        train(iterations=1, key=KEY, resume=first)
    with pytest.raises(InputError, match="needs a key"):
        train(iterations=1)


@pytest.mark.parametrize(
    "optimiser", [1e-2, optax.constant_schedule(1e-2)], ids=["number", "schedule"]
)
def test_a_step_size_or_a_schedule_stands_for_adam(optimiser):
    train = partial(mtnet.meta_train, learner(), FAMILY, iterations=2, meta_batch=2, key=KEY)
    assert_close(train(optimiser=optimiser).theta, train(optimiser=optax.adam(1e-2)).theta)


def test_training_reports_to_a_callback_and_on_a_line(capsys):
    calls = []
    result = mtnet.meta_train(
        learner(),
        FAMILY,
        iterations=5,
        meta_batch=2,
        key=KEY,
        callback=lambda *given: calls.append(given),
        progress=True,
        report_every=2,
    )
    assert [iteration for iteration, _ in calls] == [2, 4, 5]
    means = [jnp.mean(result.losses[a:b]) for a, b in ((0, 2), (2, 4), (4, 5))]
    np.testing.assert_allclose([loss for _, loss in calls], means)
    lines = capsys.readouterr().err.split("\r")
    assert [line.split(",")[0] for line in lines] == ["", *(f"iteration {i}/5" for i in (2, 4, 5))]
    assert lines[-1].endswith("\n")


@pytest.mark.parametrize("sample", [lambda e: (tuple(e.support), tuple(e.query)), list])
def test_a_family_may_return_plain_tuples(sample):
    family = FAMILY._replace(sample=lambda key: sample(FAMILY.sample(key)))
    one = learner()
    train = partial(mtnet.meta_train, one, iterations=2, meta_batch=2, key=KEY)
    result = train(FAMILY)
    assert_same(result, train(family))
    rows = [evaluate(one, f, result.theta, tasks=2, steps=1, key=KEY) for f in (family, FAMILY)]
    assert_close(*rows)


@pytest.mark.parametrize("task", [None, (1, 2), ((1, 2, 3), (1, 2)), "ab"])
def test_a_family_that_returns_something_else_is_refused(task):
    family = FAMILY._replace(sample=lambda key: task)
    with pytest.raises(InputError, match=r"must return \(\(x, y\), \(x, y\)\)"):
        family.draw(KEY)


def test_every_iteration_draws_new_tasks():
    one, still = learner(mtnet.maml, steps=0), optax.set_to_zero()
    state = init_state(one, still, KEY)
    _, losses = run_meta_steps(one, FAMILY, still, state, KEY, iterations=3, meta_batch=2)
    assert len(set(losses.tolist())) == 3


def test_meta_training_learns_to_learn():
    """After some iterations, new sine waves are learned better than at the start."""
    one = learner()
    keys = jax.random.split(jax.random.key(9), 200)
    loss = jax.jit(lambda theta: meta_gradient(one, FAMILY, theta, keys, None)[0])
    before, after = loss(one.init(KEY)), loss(trained(iterations=300).theta)
    assert after < 0.9 * before


@pytest.mark.parametrize("name", ["iterations", "meta_batch"])
def test_meta_training_needs_something_to_do(name):
    with pytest.raises(InputError, match=f"{name} must be at least 1"):
        mtnet.meta_train(learner(), FAMILY, key=KEY, **{"iterations": 1, name: 0})


def test_evaluation_measures_every_step():
    """With one and the same task each row holds the metric of the path's predictors."""
    episode = small_episode()
    absolute = lambda p, y: jnp.mean(jnp.abs(p - y))  # noqa: E731
    family = mtnet.Family("constant", lambda key: episode, mtnet.mse, absolute)
    one = mtnet.t_net(small_net(), alpha=0.1, steps=1)
    theta = shaken(one.init(KEY))
    table = evaluate(one, family, theta, tasks=4, steps=2, key=KEY, tasks_per_vmap=2)
    path = eqx.filter_jit(one.trajectory)(theta, episode.support, KEY, 2)
    for steps in range(3):
        net = jax.tree.map(lambda a, n=steps: a[n] if eqx.is_array(a) else a, path)
        expected = absolute(mtnet.predict(net, episode.query.x), episode.query.y)
        np.testing.assert_allclose(table[:, steps], expected)
    assert table.shape == (4, 3)


def test_evaluation_is_a_function_of_its_key():
    one = learner()
    theta = one.init(KEY)

    @eqx.filter_jit
    def table(key, tasks_per_vmap):
        return evaluate(
            one, FAMILY, theta, tasks=6, steps=1, key=key, tasks_per_vmap=tasks_per_vmap
        )

    assert_close(table(KEY, 6), table(KEY, 3))
    assert differ(table(KEY, 3), table(jax.random.key(1), 3))


losses = st.lists(st.floats(0, DIVERGED_ABOVE), min_size=2, max_size=40).map(np.array)


@given(losses)
def test_a_summary_is_mean_interval_and_median(values):
    found = summarise(values)
    half = 1.96 * scipy.stats.sem(values)
    np.testing.assert_allclose(found[:3], (values.mean(), half, np.median(values)), atol=1e-12)
    assert found.diverged == 0


@given(st.integers(2, 6), st.integers(0, 2**32 - 1))
def test_seeds_are_the_unit_of_an_interval(seeds, entropy):
    """Student's interval over the means of the seeds, as scipy has it."""
    values = np.random.default_rng(entropy).gamma(2.0, size=(seeds, 7))
    found = over_seeds(values)
    means = values.mean(1)
    _, high = scipy.stats.t.interval(
        0.95, seeds - 1, loc=means.mean(), scale=scipy.stats.sem(means)
    )
    np.testing.assert_allclose((found.mean, found.mean + found.ci95), (values.mean(), high))


def test_one_seed_leaves_the_spread_over_tasks():
    values = np.random.default_rng(0).gamma(2.0, size=(1, 9))
    assert over_seeds(values) == summarise(values[0])


def test_one_task_has_no_interval():
    assert summarise(np.array([1.0])).ci95 == np.inf


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_shows(bad):
    values = np.array([[0.5, 1.0, 1.5, 2.0], [0.5, bad, 1.5, 200.0]])
    for found in (summarise(values[1]), over_seeds(values)):
        assert found.mean == found.ci95 == np.inf
        assert found.diverged == 2


def test_large_losses_count_as_diverged_and_stay_in_the_mean():
    found = summarise(np.array([1.0, 1.0, 1.0, 997.0]))
    assert (found.mean, found.median, found.diverged) == (250.0, 1.0, 1)
