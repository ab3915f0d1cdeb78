"""What the norms of a task see: in training and in test the same, for every method."""

from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close, differ, shaken

from mtnet import Batch, Episode, cross_entropy, predict
from mtnet.core.norms import BatchNorm, JointBatch, freeze_batch_stats
from mtnet.experiments.table3 import TABLE3
from mtnet.methods import METHODS, known, make

KEY = jax.random.key(7)
WAYS, FEATURES, CLASSES = 3, 4, 6
MODES = ("transductive", "inductive")
COMPARES = [n for n, m in METHODS.items() if m.embeds and not m.pretrains]
RANKS = ("map-ssvm", "map-direct")
JOINT = [name for name, method in METHODS.items() if method.embeds]
"""Methods whose queries are normalised together with the support set."""
by_query_loss = sorted(METHODS.keys() - {*RANKS, "l-maml", "fine-tune", "nearest-neighbour"})
every_method = pytest.mark.parametrize("name", METHODS)
every_mode = pytest.mark.parametrize("statistics", MODES)


class Normed(eqx.Module):
    """Two layers with a norm between."""

    first: eqx.nn.Linear
    norm: BatchNorm
    last: eqx.nn.Linear

    def __init__(self, outputs):
        self.first = eqx.nn.Linear(2, 5, key=jax.random.key(1))
        self.norm = BatchNorm(5)
        self.last = eqx.nn.Linear(5, outputs, key=jax.random.key(2))

    def __call__(self, x):
        return self.last(jnp.tanh(self.norm(self.first(x))))


def batch(seed, labels):
    return Batch(1.5 * jax.random.normal(jax.random.key(seed), (len(labels), 2)), jnp.array(labels))


EPISODE = Episode(batch(1, [0, 1, 2, 2, 1, 0]), batch(2, [2, 0, 1, 1]))


@cache
def learner(name, statistics):
    """A learner and its meta-parameters in general position."""
    options = {"loss": cross_entropy, "alpha": 0.1, "steps": 2, "ways": WAYS}
    options |= {"features": FEATURES, "outputs": CLASSES, "statistics": statistics}
    net = Normed(FEATURES if METHODS[name].embeds else WAYS)
    made = make(name, net, **known(name, options))
    theta = shaken(jax.jit(made.init)(jax.random.key(3)))

    @jax.jit
    def training_and_test(episode):
        """The training loss, and the predictions for the queries after adaptation."""
        model = made.adapt(theta, episode.support, KEY)
        return made.loss(theta, episode, KEY), predict(model, episode.query.x)

    def answers(support, x):
        return training_and_test(Episode(support, EPISODE.query._replace(x=x)))[1]

    return made, theta, answers, training_and_test


def embedding(theta):
    """The network of the features."""
    return eqx.combine(theta.net, eqx.filter(Normed(FEATURES), eqx.is_inexact_array, inverse=True))


def joined(episode):
    return jnp.concatenate([episode.support.x, episode.query.x])


@every_mode
@pytest.mark.parametrize("name", by_query_loss)
def test_training_minimises_the_query_loss_of_the_predictor(name, statistics):
    *_, training_and_test = learner(name, statistics)
    loss, answers = training_and_test(EPISODE)
    assert_close(loss, cross_entropy(answers, EPISODE.query.y))


@every_mode
@pytest.mark.parametrize("name", [n for n in COMPARES if n != "map-direct"])
def test_features_of_training_are_those_of_test(name, statistics):
    """A predictor compares the features of one batch, or those by the support set's statistics."""
    _, theta, _, training_and_test = learner(name, statistics)
    of_features = make(name, lambda f: f, **known(name, {"ways": WAYS, "features": FEATURES}))
    support, query = EPISODE

    @jax.jit
    def from_features():
        net = embedding(theta)
        net = freeze_batch_stats(net, support.x) if statistics == "inductive" else net
        f = predict(net, joined(EPISODE))
        embedded = Episode(support._replace(x=f[:6]), query._replace(x=f[6:]))
        no_net = theta._replace(net=None)
        model = of_features.adapt(no_net, embedded.support, KEY)
        return of_features.loss(no_net, embedded, KEY), predict(model, f[6:])

    assert_close(from_features(), training_and_test(EPISODE))


def test_the_nearest_neighbour_compares_features_of_one_batch():
    _, theta, answers, _ = learner("nearest-neighbour", "transductive")
    f = np.asarray(predict(embedding(theta), joined(EPISODE)))
    f = f / np.linalg.norm(f, axis=1, keepdims=True)
    member = np.eye(WAYS)[np.asarray(EPISODE.support.y)] > 0
    cosines = np.where(member, (f[6:] @ f[:6].T)[..., None], -2)
    assert_close(answers(EPISODE.support, EPISODE.query.x), np.max(cosines, axis=1), rtol=1e-7)


@pytest.mark.parametrize("name", ["fine-tune", "nearest-neighbour"])
def test_pretraining_normalises_its_batch(name):
    """Its images are one batch, whatever the statistics at test time; support is not used."""
    for statistics in MODES:
        made, theta, *_ = learner(name, statistics)
        logits = predict(embedding(theta), EPISODE.query.x) @ theta.W.T + theta.b
        assert_close(made.loss(theta, EPISODE, KEY), cross_entropy(logits, EPISODE.query.y))


def test_a_joint_batch_does_not_care_which_examples_are_support():
    """Exchanged between support and query, an example keeps its features."""
    net, x = Normed(FEATURES), joined(EPISODE)
    order = jnp.array([7, 1, 9, 3, 0, 8, 2, 5, 4, 6])

    @jax.jit
    def features(x):
        joint = JointBatch(net, x[:6])
        support, query = jax.vmap(joint.both, axis_name="batch", out_axes=(None, 0))(x[6:])
        return jnp.concatenate([support, query])

    assert_close(features(x), predict(net, x))
    assert_close(features(x[order]), features(x)[order])


@every_mode
@every_method
def test_predictions_depend_on_other_queries_if_transductive(name, statistics):
    answers = learner(name, statistics)[2]
    others = EPISODE.query.x.at[1:].add(0.5)
    before, after = (answers(EPISODE.support, x)[0] for x in (EPISODE.query.x, others))
    if statistics == "transductive":
        assert differ(before, after)
    else:
        assert_close(before, after)


@pytest.mark.parametrize("name", JOINT)
def test_features_of_a_query_depend_on_the_support_set(name):
    made, theta, *_ = learner(name, "transductive")
    features = jax.jit(lambda s: predict(made.adapt(theta, s, KEY).net, EPISODE.query.x))
    moved = EPISODE.support._replace(x=EPISODE.support.x + jnp.array([0.5, -0.2]))
    assert differ(features(EPISODE.support), features(moved))


@pytest.mark.parametrize("name", JOINT)
def test_many_tasks_at_once_are_as_one_by_one(name):
    """Predictors that hold their support set can be stacked, as `adapt_many` does."""
    made, theta, answers, _ = learner(name, "transductive")
    other = EPISODE.support._replace(x=EPISODE.support.x[::-1])
    both = jax.tree.map(lambda *a: jnp.stack(a), EPISODE.support, other)

    @jax.jit
    def predictions(supports):
        models = eqx.filter_vmap(lambda s: made.adapt(theta, s, KEY))(supports)
        return eqx.filter_vmap(lambda m: predict(m, EPISODE.query.x))(models)

    stacked = predictions(both)
    for found, support in zip(stacked, (EPISODE.support, other), strict=True):
        assert_close(found, answers(support, EPISODE.query.x))


@pytest.mark.parametrize("experiment", TABLE3, ids=lambda e: e.name)
def test_table_3_tests_every_network_both_ways_and_compares_one(experiment):
    """Published numbers stand beside transductive ones only."""
    configs = experiment.trainings(False, 1)
    rows = experiment.rows(configs)
    for name in configs:
        ours = [row for row in rows if row.training == name]
        assert {"transductive", "inductive"} <= {row.column for row in ours}
        for row in ours:
            assert row.column.split()[0] == row.inner["statistics"]
            assert row.published is None or row.column == "transductive"
    assert experiment.tasks[0] >= 1_000
