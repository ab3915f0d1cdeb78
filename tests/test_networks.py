"""Any network can become an MT-net: one of each kind is, and obeys the laws."""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
import pytest
from helpers import CERTAIN, arrays, assert_close, differ, shaken

import mtnet
from mtnet import InputError, cross_entropy, predict, split
from mtnet.files import leaves_by_name

networks = pytest.importorskip("networks", reason="flax is not installed: pip install flax")
KEY = jax.random.key(3)
every_kind = pytest.mark.parametrize("name", networks.KINDS)


def all_rows(theta):
    """Masks that let everything move."""
    return theta._replace(zeta=jax.tree.map(lambda z: jnp.full_like(z, CERTAIN), theta.zeta))


def learner(kind, make=mtnet.mt_net, **more):
    options = {"loss": cross_entropy, "alpha": 0.1, "steps": 1} | kind.options | more
    return make(kind.net, **options)


@every_kind
def test_a_network_of_each_kind_is_transformed_trained_and_adapted(name):
    kind = networks.TRAINED[name]
    made, episode = learner(kind, steps=1), networks.episode(kind)
    adam = optax.adam(0.02)

    def step(carry, key):
        theta, state = carry
        loss, slope = jax.value_and_grad(made.loss)(theta, episode, key)
        updates, state = adam.update(slope, state, theta)
        finite = [jnp.all(jnp.isfinite(g)) for g in jax.tree.leaves(slope)]
        return (optax.apply_updates(theta, updates), state), (loss, jnp.all(jnp.array(finite)))

    @eqx.filter_jit
    def train_and_adapt():
        theta = made.init(KEY)
        (theta, _), (losses, finite) = jax.lax.scan(
            step, (theta, adam.init(theta)), jax.random.split(KEY, 15)
        )
        model = made.adapt(theta, episode.support, KEY)
        return losses, finite, model, predict(model, episode.query.x)

    losses, finite, model, predictions = train_and_adapt()
    assert finite.all()
    assert losses[-5:].sum() < 0.9 * losses[:5].sum()
    assert type(model) is type(kind.net)
    like = lambda net: {n: (a.shape, a.dtype) for n, a in leaves_by_name(arrays(net)).items()}  # noqa: E731
    assert like(model) == like(kind.net)
    assert predictions.shape == (6, networks.CLASSES)


@every_kind
def test_the_laws_hold_for_each_kind(name):
    """Joining gives the network back; no step leaves it; T = I and all rows is MAML; order."""
    kind = networks.KINDS[name]
    episode = networks.episode(kind)
    parts = split(kind.net, **kind.options)
    again = arrays(parts.join(parts.W, parts.rest))
    assert_close(again, arrays(kind.net))

    @eqx.filter_jit
    def from_init(made, change=lambda theta: theta):
        return made.adapt(change(made.init(KEY)), episode.support, KEY)

    assert_close(arrays(from_init(learner(kind, steps=0))), again)
    mt, maml = learner(kind), learner(kind, mtnet.maml)
    adapt = eqx.filter_jit(mt.adapt)
    adapted, plain = from_init(mt, all_rows), from_init(maml)
    assert_close(arrays(adapted), arrays(plain), rtol=1e-7)
    assert differ(arrays(adapted), again)

    theta = jax.jit(lambda: all_rows(shaken(mt.init(KEY))))()
    backwards = jax.tree.map(lambda a: a[::-1], episode.support)
    one, other = (adapt(theta, s, KEY) for s in (episode.support, backwards))
    assert_close(arrays(one), arrays(other), rtol=1e-6, atol=1e-9)


def test_dropout_is_for_training_only():
    kind = networks.KINDS["dropout"]
    made, episode = learner(kind, mtnet.maml), networks.episode(kind)
    theta = made.init(KEY)
    loss = eqx.filter_jit(made.loss)
    one, other = (loss(theta, episode, jax.random.key(i)) for i in range(2))
    assert one != other
    model = eqx.filter_jit(made.adapt)(theta, episode.support, KEY)
    assert model.dropout.inference
    assert_close(predict(model, episode.query.x), predict(model, episode.query.x))


class Attentive(eqx.Module):
    """Attention holds a Dropout with p = 0; nothing here takes a key."""

    attention: eqx.nn.MultiheadAttention

    def __call__(self, x):
        return jnp.mean(self.attention(x, x, x), 0)


def test_dropout_that_never_drops_needs_no_key():
    net = Attentive(eqx.nn.MultiheadAttention(1, 2, key=KEY))
    made = mtnet.maml(net)
    x = jax.random.normal(KEY, (3, 4, 2))
    batch = mtnet.Batch(x, jnp.ones((3, 2)))
    assert jnp.isfinite(made.loss(made.init(KEY), mtnet.Episode(batch, batch), KEY))


class Normed(networks.nnx.Module):
    def __init__(self):
        rngs = networks.nnx.Rngs(0)
        self.norm = networks.nnx.BatchNorm(2, rngs=rngs)
        self.head = networks.nnx.Linear(2, networks.CLASSES, rngs=rngs)

    def __call__(self, x):
        return self.head(self.norm(x))


def test_a_norm_that_changes_its_own_state_is_refused_with_a_way_out():
    batch = mtnet.Batch(jax.random.normal(KEY, (3, 2), jnp.float32), jnp.array([0, 1, 2]))
    made = mtnet.maml(Normed(), loss=cross_entropy)
    with pytest.raises(InputError, match=r"nnx\.BatchNorm.*net\.eval\(\)"):
        made.adapt(made.init(KEY), batch, KEY)
    net = Normed()
    net.eval()
    made = mtnet.maml(net, loss=cross_entropy, freeze=["*.mean*", "*.var*"])
    theta = made.init(KEY)
    assert not any("mean" in name or "var" in name for name in theta.rest)
    assert predict(made.adapt(theta, batch, KEY), batch.x).shape == (3, networks.CLASSES)


def test_a_metric_that_is_too_large_is_refused_with_a_way_out():
    wide = eqx.nn.Linear(1, 30_000, key=KEY)
    with pytest.raises(InputError, match=r"3433 MB|6866 MB"):
        mtnet.mt_net(wide)
    assert mtnet.maml(wide)
    assert mtnet.mt_net(wide, blocks={"*": 30_000})


@pytest.mark.parametrize("blocks", [1, 2, 4])
def test_a_metric_of_blocks_is_that_metric_with_zeros_elsewhere(blocks):
    net = eqx.nn.MLP(2, 2, 4, 1, activation=jnp.tanh, key=KEY)
    made = mtnet.t_net(net, alpha=0.1, blocks={"layers.0": blocks})
    theta = shaken(made.init(KEY))
    full = mtnet.t_net(net, alpha=0.1)
    T = jax.scipy.linalg.block_diag(
        *jnp.atleast_3d(theta.T["layers.0"]).reshape(blocks, 4 // blocks, -1)
    )
    dense = theta._replace(T=theta.T | {"layers.0": T})
    x = jax.random.normal(KEY, (5, 2))
    support = mtnet.Batch(x, jnp.sin(x))
    assert_close(made.adapt(theta, support, KEY), full.adapt(dense, support, KEY))


def test_blocks_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match="3 blocks"):
        mtnet.t_net(eqx.nn.Linear(2, 4, key=KEY), blocks={"*": 3})


@pytest.mark.parametrize("make", [mtnet.maml, mtnet.meta_sgd, mtnet.mt_net, mtnet.mt_net_full])
def test_a_tied_head_serves_any_number_of_classes(make):
    """What is learned does not depend on how the classes are called, nor on how many there are."""

    def learner(ways):
        net = eqx.nn.MLP(2, ways, 4, 1, activation=jnp.tanh, key=KEY)
        return make(net, loss=cross_entropy, alpha=0.5, shared_head="layers.1")

    few, many = learner(3), learner(5)
    theta = shaken(few.init(KEY))
    sizes = jax.tree.map(jnp.shape, theta)
    assert sizes == jax.tree.map(jnp.shape, many.init(KEY))
    x = jax.random.normal(KEY, (6, 2))
    y = jnp.array([0, 1, 1, 2, 2, 2])  # classes of unequal size
    for chance in jax.random.split(KEY, 3):  # whatever the masks are
        answers = predict(few.adapt(theta, mtnet.Batch(x, y), chance), x)
        renamed = predict(few.adapt(theta, mtnet.Batch(x, (y + 1) % 3), chance), x)
        assert_close(answers, jnp.roll(renamed, -1, axis=1))
    assert predict(many.adapt(theta, mtnet.Batch(x, y), KEY), x).shape == (6, 5)


def test_only_a_cell_can_be_tied():
    with pytest.raises(InputError, match=r"layers\.0, layers\.1"):
        mtnet.maml(eqx.nn.MLP(2, 2, 4, 1, key=KEY), shared_head="head")
