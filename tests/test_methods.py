"""Oracles for the methods that are no rule, and training through the settings."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import arrays, assert_close, shaken, small_batch
from hypothesis import given, strategies as st
from jax.flatten_util import ravel_pytree

from mtnet import Batch, Episode, InputError, cross_entropy, mse, predict
from mtnet.build import build_learner, build_training_family, check_config
from mtnet.config import configure
from mtnet.core.outer import meta_gradient
from mtnet.core.rules import RULES
from mtnet.methods import METHODS, known, laplace, make, map_ssvm, matching, meta_lstm
from mtnet.tasks.episodes import all_classes, image_episodes

KEY = jax.random.key(7)
WAYS, FEATURES, CLASSES = 3, 4, 6
every_method = pytest.mark.parametrize("name", METHODS)


def labelled(seed, labels):
    x = jax.random.normal(jax.random.key(seed), (len(labels), 2))
    return Batch(x, jnp.array(labels))


CLASSED = Episode(labelled(1, [0, 1, 2, 2, 1]), labelled(2, [2, 0, 1, 1]))
CURVES = Episode(small_batch(2), small_batch(3))


def learner(name, episode=CLASSED, **more):
    """A learner of the small tasks, with whatever options its method knows."""
    method, classes = METHODS[name], episode is CLASSED
    outputs = FEATURES if method.embeds else WAYS if classes else 2
    net = eqx.nn.MLP(2, outputs, 5, 1, activation=jnp.tanh, key=jax.random.key(1))
    options = {"loss": cross_entropy if classes else mse, "alpha": 0.1, "steps": 2}
    options |= {"ways": WAYS if classes else None, "features": FEATURES}
    options |= {"outputs": CLASSES if classes else 2}
    return make(name, net, **(known(name, options) | more))


@pytest.mark.parametrize("name", ["mt-net", *sorted(METHODS.keys() - RULES.keys())])
def test_training_on_images_lowers_the_loss(name):
    """Through the settings, as `mtnet train` does it: tasks, or all classes for a baseline."""
    config = configure(
        **{"method": name, "family": "omniglot", "ways": 2, "shots": 1, "queries": 2},
        **{"filters": 4, "meta_batch": 2, "head_sd": 0.1},
    )
    rng = np.random.default_rng(0)
    shape = rng.integers(0, 60, (4, 1, 28, 28, 1))  # faint, so that there is something to learn
    pixels = jnp.asarray(shape + rng.integers(0, 180, (4, 5, 28, 28, 1)), jnp.uint8)
    made, family = build_learner(config), build_training_family(config, pixels)
    adam, keys = optax.adam(1e-2), jax.random.split(KEY, 2)

    def step(carry, _):
        theta, state = carry
        loss, gradient = meta_gradient(made, family, theta, keys, 1)
        updates, state = adam.update(gradient, state, theta)
        return (optax.apply_updates(theta, updates), state), loss

    @jax.jit
    def losses():
        theta = made.init(KEY)
        return jax.lax.scan(step, (theta, adam.init(theta)), length=9)[1]

    first, *_, last = losses()
    assert last < first


@pytest.mark.parametrize("name", [n for n, m in METHODS.items() if not m.regression])
def test_classes_are_asked_for_where_a_method_needs_them(name):
    with pytest.raises(InputError, match="classes"):
        check_config(configure(method=name, family="sine"))
    with pytest.raises(InputError, match="whole numbers"):
        learner(name).adapt(learner(name).init(KEY), CURVES.support, KEY)


@every_method
def test_other_ways_in_training_are_refused_or_done(name):
    settings = {"method": name, "family": "omniglot", "shots": 1, "queries": 1}
    if METHODS[name].any_ways:
        assert build_learner(configure(train_ways=8, **settings), None, 8)
    else:
        with pytest.raises(InputError, match="train_ways"):
            configure(train_ways=8, **settings)


def test_all_classes_have_labels_of_their_own():
    pixels = jnp.arange(6, dtype=jnp.uint8).reshape(6, 1, 1, 1, 1) + jnp.zeros(
        (6, 3, 2, 2, 1), jnp.uint8
    )
    x, y = all_classes(pixels, 50).sample(KEY).query
    assert_close(jnp.round(255 * x[:, 0, 0, 0]), y.astype(x.dtype))
    corner = pixels.at[:, :, 0, 0, 0].set(100)
    x, y = all_classes(corner, 50, rotations=True).sample(KEY).query
    place = jnp.argmax(x.reshape(50, 4), axis=1)
    turned = jnp.array([0, 2, 3, 1])  # the corner goes round: down, right, up
    assert_close(place, turned[y % 4])
    assert int(jnp.max(y)) < 24


# Matching networks


def cosine(a, b):
    return a @ b / (np.linalg.norm(a) * np.linalg.norm(b))


@pytest.mark.parametrize("scale", [1.0, 10.0])
def test_attention_is_the_naive_loop(scale):
    g, f = np.random.default_rng(0).normal(size=(2, 5, 4))
    labels = [0, 2, 1, 2, 0]
    e = [np.exp(scale * cosine(f[0], row)) for row in g]
    expected = np.zeros(3)
    for weight, label in zip(e, labels, strict=True):
        expected[label] += weight / sum(e)
    memory = matching.Memory(jnp.asarray(g), jax.nn.one_hot(jnp.array(labels), 3), None)
    found = jnp.exp(matching.attention(jnp.asarray(f[0]), memory, scale))
    assert_close(found, jnp.asarray(expected))


def lstm(cell, x, h, c):
    """The textbook's four gates."""
    z = np.asarray(cell.weight_ih) @ x + np.asarray(cell.weight_hh) @ h + np.asarray(cell.bias)
    i, f, g, o = np.split(z, 4)
    sigmoid = lambda v: 1 / (1 + np.exp(-v))  # noqa: E731
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def test_full_context_embeddings_are_the_naive_loop():
    one, two, three = jax.random.split(KEY, 3)
    cells = [eqx.nn.LSTMCell(4, 4, key=one), eqx.nn.LSTMCell(4, 4, key=two)]
    reader = eqx.nn.LSTMCell(8, 4, key=three)
    g, f = np.random.default_rng(0).normal(size=(2, 5, 4))
    expected = g.copy()
    for cell, order in zip(cells, (range(5), range(4, -1, -1)), strict=True):
        h = c = np.zeros(4)
        for i in order:
            h, c = lstm(cell, g[i], h, c)
            expected[i] += h
    assert_close(
        matching.in_context(matching.Context(*cells, reader), jnp.asarray(g)), jnp.asarray(expected)
    )
    h, c = f[0], np.zeros(4)
    for _ in range(matching.READS):
        a = np.exp(g @ h)
        h, c = lstm(reader, np.concatenate([f[0], a / a.sum() @ g]), h, c)
        h = h + f[0]
    assert_close(matching.read(reader, jnp.asarray(f[0]), jnp.asarray(g)), jnp.asarray(h))


# Rankings


def by_hand(phi, relevant):
    """F and AP of every ranking there is."""
    P, N = [np.flatnonzero(relevant == r) for r in (True, False)]
    for order in itertools.permutations(range(len(phi))):
        place = np.argsort(order)
        y = np.where(place[P][:, None] < place[N][None, :], 1, -1)
        F = np.mean(y * (phi[P][:, None] - phi[N][None, :]))
        hits = np.sort(place[P])
        AP = np.mean([(i + 1) / (p + 1) for i, p in enumerate(hits)])
        yield F, AP


best_ranking = jax.jit(map_ssvm.best_ranking, static_argnums=(3, 4))
rankings = st.integers(1, 3).flatmap(
    lambda p: st.tuples(
        st.just(p), st.lists(st.floats(-1, 1, width=16), min_size=p + 1, max_size=6)
    )
)


@given(rankings, st.sampled_from([0.0, 0.3, 1.0, 5.0]), st.sampled_from([None, 3]))
def test_the_best_ranking_is_the_best_of_all(drawn, weight, most):
    positives, phi = drawn
    phi, relevant = np.array(phi), np.arange(len(phi)) < positives
    expected = max(F + weight * (1 - AP) for F, AP in by_hand(phi, relevant))
    absent = 7 - len(phi)  # points that are not there: at least the ranking one
    padded = jnp.asarray(np.append(phi, [0.7] * absent))
    marks = jnp.asarray(np.append(relevant, [True] * absent))
    valid = jnp.asarray(np.arange(7) < len(phi))
    found = best_ranking(padded, marks, valid, weight, most)
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_the_true_ranking_has_the_score_of_perfect_precision():
    phi, relevant = np.array([0.3, -0.2, 0.5, 0.1]), np.array([True, True, False, False])
    expected = next(F for F, AP in by_hand(phi, relevant) if AP == 1)
    found = map_ssvm.true_score(jnp.asarray(phi), jnp.asarray(relevant), jnp.ones(4, bool))
    np.testing.assert_allclose(found, expected)


def svm_by_hand(phi, relevant):
    rankings = list(by_hand(phi, relevant))
    true = next(F for F, AP in rankings if AP == 1)
    return max(F + 1 - AP for F, AP in rankings) - true


def direct_by_hand(phi, relevant):
    rankings, epsilon = list(by_hand(phi, relevant)), map_ssvm.EPSILON
    best = max(F + epsilon * (1 - AP) for F, AP in rankings)
    return (best - max(F for F, _ in rankings)) / epsilon


@pytest.mark.parametrize(
    ("name", "objective"), [("map-ssvm", svm_by_hand), ("map-direct", direct_by_hand)]
)
def test_ranking_losses_and_predictions_are_those_by_hand(name, objective):
    """Every point ranks all others; a new one gets the class with the largest mean cosine."""
    scale = 0.8  # so small that the best ranking is not always the order of the cosines
    made = learner(name, scale=scale)
    theta = shaken(made.init(KEY))
    episode = Episode(labelled(1, [0, 1, 0]), labelled(2, [1, 0]))
    x, y = (np.concatenate(pair) for pair in zip(*episode, strict=True))
    model = made.adapt(theta, episode.support, KEY)
    f = np.asarray(predict(model.net, jnp.asarray(x)))
    each = []
    for i in range(len(y)):
        others = [j for j in range(len(y)) if j != i]
        phi = scale * np.array([cosine(f[i], f[j]) for j in others])
        each.append(objective(phi, y[others] == y[i]))
    np.testing.assert_allclose(made.loss(theta, episode, KEY), np.mean(each))
    for i in (3, 4):
        cosines = np.array([cosine(f[i], f[j]) for j in range(3)])
        means = [cosines[y[:3] == k].mean() for k in (0, 1)]
        np.testing.assert_allclose(model(jnp.asarray(x[i]))[:2], means)


# Baselines, prototypes


def test_distance_scale_changes_the_loss_of_prototypical_and_no_prediction():
    plain, scaled = learner("prototypical"), learner("prototypical", distance_scale=0.25)
    theta, (support, query) = plain.init(KEY), CLASSED
    scores = predict(plain.adapt(theta, support, KEY), query.x)
    assert_close(predict(scaled.adapt(theta, support, KEY), query.x), scores)
    assert_close(scaled.loss(theta, CLASSED, KEY), cross_entropy(0.25 * scores, query.y))
    assert not np.isclose(scaled.loss(theta, CLASSED, KEY), plain.loss(theta, CLASSED, KEY))


@pytest.mark.parametrize("method", ["maml", "meta-sgd", "t-net", "mt-net", "mt-net-full"])
def test_query_scale_changes_the_meta_training_loss_and_no_prediction(method):
    plain, scaled = learner(method), learner(method, query_scale=4.0)
    theta, (support, query) = shaken(plain.init(KEY)), CLASSED
    scores = predict(plain.adapt(theta, support, KEY), query.x)
    assert_close(predict(scaled.adapt(theta, support, KEY), query.x), scores)
    assert_close(scaled.loss(theta, CLASSED, KEY), cross_entropy(4.0 * scores, query.y))
    assert not np.isclose(scaled.loss(theta, CLASSED, KEY), plain.loss(theta, CLASSED, KEY))


def test_prototypes_of_one_shot_are_nearest_neighbours():
    one_shot = labelled(1, [2, 0, 1])
    made = learner("prototypical")
    theta = shaken(made.init(KEY))
    model = made.adapt(theta, one_shot, KEY)
    features = np.asarray(predict(model.net, one_shot.x))
    for x in np.random.default_rng(0).normal(size=(20, 2)):
        away = np.linalg.norm(features - np.asarray(model.net(jnp.asarray(x))), axis=1)
        assert int(jnp.argmax(model(jnp.asarray(x)))) == int(one_shot.y[np.argmin(away)])


def test_fine_tuning_the_head_leaves_the_features_alone():
    made = learner("fine-tune", alpha=0.5, steps=40, head_only=True)
    theta = shaken(made.init(KEY))
    model = made.adapt(theta, CLASSED.support, KEY)
    assert_close(arrays(model.net), theta.net)
    before = cross_entropy(jnp.zeros((5, WAYS)), CLASSED.support.y)
    assert cross_entropy(predict(model, CLASSED.support.x), CLASSED.support.y) < before


@pytest.mark.parametrize("episode", [CLASSED, CURVES], ids=["classes", "numbers"])
def test_the_nearest_neighbour_is_the_one_of_a_naive_search(episode):
    made = learner("nearest-neighbour", episode)
    theta = shaken(made.init(KEY))
    model = made.adapt(theta, episode.support, KEY)
    f, g = (np.asarray(predict(model.net, batch.x)) for batch in episode)
    for i, x in enumerate(episode.query.x):
        cosines = [cosine(g[i], row) for row in f]
        nearest = episode.support.y[int(np.argmax(cosines))]
        if episode is CURVES:
            assert_close(model(x), nearest)
        else:
            assert int(jnp.argmax(model(x))) == int(nearest)
            assert_close(jnp.max(model(x)), jnp.asarray(max(cosines)))


# The meta-learner LSTM


def test_with_gates_set_by_hand_the_meta_lstm_is_gradient_descent():
    alpha, steps = 0.1, 3
    net = eqx.nn.MLP(2, 2, 5, 1, activation=jnp.tanh, key=KEY)
    made = meta_lstm.meta_lstm(net, loss=mse, steps=steps)
    theta = made.init(KEY)
    still = jax.tree.map(jnp.zeros_like, theta.i)
    theta = theta._replace(
        i=still._replace(b=jnp.log(alpha / (1 - alpha))), f=still._replace(b=jnp.array(1e3))
    )
    weights, static = eqx.partition(net, eqx.is_inexact_array)
    for _ in range(steps):
        loss = lambda w: mse(predict(eqx.combine(w, static), CURVES.support.x), CURVES.support.y)  # noqa: E731
        weights = jax.tree.map(lambda w, g: w - alpha * g, weights, jax.grad(loss)(weights))
    assert_close(arrays(made.adapt(theta, CURVES.support, KEY)), weights)


def test_the_gates_of_the_meta_lstm_are_the_naive_loop():
    """Every weight by itself: its LSTM, then i and f, then c = f c - i g."""
    net = eqx.nn.Linear(1, 2, key=KEY)
    theta = shaken(meta_lstm.meta_lstm(net).init(KEY))
    sigmoid = lambda v: 1 / (1 + np.exp(-v))  # noqa: E731
    seen = lambda x: np.asarray(meta_lstm.preprocess(jnp.asarray(x)))  # noqa: E731
    state = meta_lstm.first(theta)
    n = len(theta.c)
    c, i, f = np.asarray(theta.c).copy(), np.zeros(n), np.ones(n)
    memory = [(np.zeros(meta_lstm.HIDDEN), np.zeros(meta_lstm.HIDDEN)) for _ in range(n)]
    for value, g in ((0.5, np.array([0.1, -2.0, 1e-6, 0.0])), (0.2, np.array([1.0, 0.3, -0.1, 2]))):
        state = meta_lstm.move(theta, state, jnp.asarray(value), jnp.asarray(g))
        for w in range(n):
            memory[w] = lstm(theta.lstm, np.concatenate([seen(g[w]), seen(value)]), *memory[w])
            last = {"i": i[w], "f": f[w]}
            i[w], f[w] = (
                sigmoid(memory[w][0] @ np.asarray(p.h) + c[w] * p.c + last[k] * p.last + p.b)
                for k, p in (("i", theta.i), ("f", theta.f))
            )
            c[w] = f[w] * c[w] - i[w] * g[w]
    for ours, naive in ((state.c, c), (state.i, i), (state.f, f)):
        np.testing.assert_allclose(ours, naive)


def test_the_meta_lstm_is_trained_to_first_order():
    """Its gradient is that of the query loss with every loss and gradient of the task constant."""
    steps = 2
    net = eqx.nn.MLP(2, 2, 3, 1, activation=jnp.tanh, key=KEY)
    made = meta_lstm.meta_lstm(net, loss=mse, steps=steps)
    theta = shaken(made.init(KEY))
    arrays_of_net, static = eqx.partition(net, eqx.is_inexact_array)
    unravel = ravel_pytree(arrays_of_net)[1]
    on = lambda batch, c: mse(predict(eqx.combine(unravel(c), static), batch.x), batch.y)  # noqa: E731
    task = jax.jit(jax.value_and_grad(lambda c: on(CURVES.support, c)))
    state, constants = meta_lstm.first(theta), []
    for _ in range(steps):
        constants.append(task(state.c))
        state = meta_lstm.move(theta, state, *constants[-1])

    @jax.jit
    def query_loss(theta):
        state = meta_lstm.first(theta)
        for value, g in constants:
            state = meta_lstm.move(theta, state, value, g)
        return on(CURVES.query, state.c)

    slope = jax.jit(jax.grad(made.loss))(theta, CURVES, KEY)
    direction = shaken(jax.tree.map(jnp.zeros_like, theta), seed=9)
    at = lambda h: query_loss(jax.tree.map(lambda t, d: t + h * d, theta, direction))  # noqa: E731
    ours = sum(jax.tree.leaves(jax.tree.map(jnp.vdot, slope, direction)))
    np.testing.assert_allclose(ours, (at(1e-5) - at(-1e-5)) / 2e-5, rtol=1e-6)


@given(st.floats(-1e6, 1e6))
def test_preprocessing_keeps_size_and_sign_apart(x):
    size, sign = meta_lstm.preprocess(jnp.asarray(x))
    large = abs(x) >= np.exp(-10)
    expected = (np.log(abs(x)) / 10, np.sign(x)) if large else (-1, np.exp(10) * x)
    np.testing.assert_allclose((size, sign), expected, rtol=1e-12, atol=1e-12)


# L-MAML


@pytest.mark.parametrize("n", [1, 2, 5])
def test_the_log_determinant_of_the_kronecker_product_is_the_dense_one(n):
    G = np.random.default_rng(0).normal(size=(n, 3, 4))
    L, R = sum(g @ g.T for g in G), sum(g.T @ g for g in G)
    d = 0.2
    dense = np.kron(L + d * np.eye(3), R + d * np.eye(4))
    found = laplace.log_det({"cell": jnp.asarray(G)}, damping=d**2)
    np.testing.assert_allclose(found, np.linalg.slogdet(dense)[1])


def test_the_curvature_of_one_example_of_a_linear_layer_is_exact():
    """There it is the outer product of the gradient with itself, H = L (x) R."""
    net = eqx.nn.Linear(2, 3, key=KEY)
    x, y = np.array([0.5, -1.5, 1.0]), np.array([1.0, -2.0, 0.3])
    (G,) = laplace.gradients(net, Batch(jnp.array([x[:2]]), jnp.array([y])), mse).values()
    L, R = G[0] @ G[0].T, G[0].T @ G[0]
    error = np.asarray(net.weight) @ x[:2] + np.asarray(net.bias) - y
    g = np.outer(2 / 3 * error, x).reshape(-1)
    np.testing.assert_allclose(np.kron(L, R), np.outer(g, g), atol=1e-12)


def test_without_its_determinant_l_maml_is_maml():
    laplaced, plain = learner("l-maml", eta=0.0), learner("maml")
    theta = shaken(plain.init(KEY))
    one, other = (jax.jit(made.loss)(theta, CLASSED, KEY) for made in (laplaced, plain))
    assert_close(one, other)


def test_an_episode_family_of_more_ways_has_them():
    pixels = jnp.zeros((9, 3, 28, 28, 1), jnp.uint8)
    config = configure(method="prototypical", family="omniglot", shots=1, queries=2, train_ways=8)
    assert build_training_family(config, pixels).sample(KEY).support.x.shape[0] == 8
    assert image_episodes(pixels, ways=5).sample(KEY).support.x.shape[0] == 5
