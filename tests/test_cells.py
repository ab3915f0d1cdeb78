"""Which weights become cells, and what the patterns do."""

import equinox as eqx
import jax
import jax.numpy as jnp
import literal
import optax
import pytest
from helpers import assert_close, certain, differ, shaken, small_batch, small_episode

import mtnet
from mtnet import InputError, split

KEYS = jax.random.split(jax.random.key(0), 8)


class Wrapped(eqx.Module):
    """Layers at any depth of lists, dictionaries and modules."""

    parts: dict
    inner: eqx.Module


def linear(i=0, size=3):
    return eqx.nn.Linear(size, size, key=KEYS[i])


def sequence(*layers):
    return eqx.nn.Sequential(layers)


LAYERS = {
    "linear": eqx.nn.Linear(3, 4, key=KEYS[0]),
    "no bias": eqx.nn.Linear(3, 4, use_bias=False, key=KEYS[0]),
    "conv1d": eqx.nn.Conv1d(2, 4, 3, key=KEYS[0]),
    "conv2d": eqx.nn.Conv2d(2, 4, 3, key=KEYS[0]),
    "conv2d no bias": eqx.nn.Conv2d(2, 4, 3, use_bias=False, key=KEYS[0]),
    "grouped": eqx.nn.Conv2d(4, 4, 2, groups=2, key=KEYS[0]),
    "transpose": eqx.nn.ConvTranspose2d(2, 4, 3, key=KEYS[0]),
}


@pytest.mark.parametrize("kind", LAYERS)
def test_every_layer_becomes_a_cell(kind):
    """Its arrays are the cell's, output axis first; joining gives the network back."""
    layer = LAYERS[kind]
    net = sequence(layer, eqx.nn.LayerNorm(4))
    parts = split(net)
    assert parts.W.keys() == {"layers.0"}
    assert len(parts.W["layers.0"]) == 1 + layer.use_bias
    assert all(len(w) == 4 for w in parts.W["layers.0"])
    assert parts.rest.keys() == {"layers.1.weight", "layers.1.bias"}
    assert eqx.tree_equal(parts.join(parts.W, parts.rest), net)


def test_a_layer_alone_is_a_network():
    parts = split(linear())
    assert len(parts.W) == 1
    assert not parts.rest


def test_cells_are_found_at_any_depth():
    attention = eqx.nn.MultiheadAttention(2, 4, key=KEYS[1])
    net = Wrapped({"a": [linear(0), jnp.tanh], "b": {"c": linear(2)}}, attention)
    assert split(net).W.keys() == {
        "parts.a.0",
        "parts.b.c",
        *(f"inner.{p}_proj" for p in ("query", "key", "value", "output")),
    }


def test_names_that_only_look_alike_are_refused():
    """A dictionary key with a dot in it is not a path."""
    net = {"a.b": linear(0), "a": {"b": linear(1)}}
    with pytest.raises(InputError, match=r"two arrays are called `a\.b\.weight`: rename the key"):
        split(net)


@pytest.mark.parametrize("kind", ["conv1d", "transpose", "grouped"])
def test_t_is_a_1x1_convolution_for_every_convolution(kind):
    """fold(T, W) run as a layer equals T after the layer, group by group."""
    layer = LAYERS[kind]
    net = sequence(layer)
    learner = mtnet.t_net(net)
    theta = shaken(learner.init(KEYS[0]))
    x = jax.random.normal(KEYS[1], (layer.in_channels, *(4,) * layer.num_spatial_dims))
    T = theta.T["layers.0"]
    full = jax.scipy.linalg.block_diag(*T) if kind == "grouped" else T
    before = split(net).join(theta.W, theta.rest)
    after = split(net).join(mtnet.fold(theta.T, theta.W), theta.rest)
    assert_close(after(x), jnp.tensordot(full, before(x), axes=1))


def test_a_grouped_convolution_learns_as_its_literal_self():
    """Block-diagonal T: value and adapted weights, against activation space."""
    net = sequence(LAYERS["grouped"])
    x, y = small_batch(inputs=(4, 4, 4), outputs=(4, 3, 3))
    learner = mtnet.mt_net(net, alpha=0.5, steps=2)
    theta = shaken(learner.init(KEYS[0]))
    zeta, m = certain(theta.zeta)
    adapted = eqx.filter_jit(learner.adapt)(theta._replace(zeta=zeta), mtnet.Batch(x, y), KEYS[1])
    (W, b), T = theta.W["layers.0"], jax.scipy.linalg.block_diag(*theta.T["layers.0"])
    cell = literal.Cell(W, b, T, literal.row_mask(m["layers.0"], W, b))
    forward = lambda cells, one: literal.convolution(*cells, one, groups=2)  # noqa: E731
    (expected,) = literal.learn(forward, [cell], x, y, 0.5, 2)
    layer = adapted.layers[0]
    assert_close(layer.weight, jnp.tensordot(T, expected.W, axes=1))
    assert_close(layer.bias, jnp.tensordot(T, expected.b, axes=1))
    assert_close(adapted(x[0]), forward([expected], x[0]))


def test_a_weight_that_is_no_cell_is_named():
    net, names = Wrapped({"odd": jnp.ones((2, 3))}, linear()), ["parts.odd"]
    with pytest.raises(InputError, match=f"`{names[0]}`"):
        split(net)
    assert split(net, cells=["inner", *names]).W.keys() == {"inner", *names}
    assert names[0] in split(net, meta_only=names).rest
    frozen = split(net, freeze=names)
    assert names[0] not in frozen.W | frozen.rest


class Named(eqx.Module):
    """Three linear layers with a norm between them."""

    first: eqx.nn.Linear
    norm: eqx.nn.LayerNorm
    second: eqx.nn.Linear
    last: eqx.nn.Linear

    def __init__(self):
        self.first, self.second, self.last = (linear(i) for i in range(3))
        self.norm = eqx.nn.LayerNorm(3)

    def __call__(self, x):
        return self.last(jnp.tanh(self.second(self.norm(jnp.tanh(self.first(x))))))


@pytest.mark.parametrize(
    ("options", "adapted"),
    [
        ({}, {"first", "second", "last"}),
        ({"cells": ["last"]}, None),
        ({"cells": ["first", "last"], "meta_only": ["second"]}, {"first", "last"}),
        ({"cells": ["*s*"], "freeze": ["second"]}, {"first", "last"}),
        ({"meta_only": ["first"]}, {"second", "last"}),
        ({"freeze": ["first", "second.weight", "second.bias"]}, {"last"}),
        ({"meta_only": ["norm"]}, {"first", "second", "last"}),
    ],
)
def test_patterns_choose_the_cells(options, adapted):
    if adapted is None:  # a weight that would be left behind silently
        with pytest.raises(InputError, match=r"first\.weight"):
            split(Named(), **options)
    else:
        assert split(Named(), **options).W.keys() == adapted


def test_who_moves_and_who_is_meta_learned():
    """Cells move within a task; the rest and what is left out is meta-learned; frozen stays."""
    net, episode = Named(), small_episode(inputs=(3,), outputs=(3,))
    learner = mtnet.mt_net(net, alpha=0.3, meta_only=["first", "last.bias"], freeze=["second.bias"])
    theta = learner.init(KEYS[0])
    theta = theta._replace(zeta=certain(theta.zeta)[0])
    slope = jax.jit(jax.grad(learner.loss))(theta, episode, KEYS[1])
    left_out = {"first.weight", "first.bias", "last.bias", "norm.weight", "norm.bias"}
    assert slope.rest.keys() == left_out
    assert all(jnp.any(g != 0) for g in slope.rest.values())
    theta = optax.apply_updates(theta, slope)
    new = eqx.filter_jit(learner.adapt)(theta, episode.support, KEYS[2])
    assert differ(new.second.weight, net.second.weight)
    assert eqx.tree_equal(new.second.bias, net.second.bias)
    for name in left_out:
        layer, array = name.split(".")
        assert_close(getattr(getattr(new, layer), array), theta.rest[name])


def test_an_array_that_appears_twice_is_refused():
    twice = linear()
    with pytest.raises(InputError, match=r"layers\.0\.weight.*layers\.1\.weight"):
        split(sequence(twice, twice))


class Tied(eqx.Module):
    """Two layers that share one weight."""

    layers: eqx.nn.Shared

    def __init__(self, net):
        self.layers = eqx.nn.Shared(
            net, where=lambda net: net[1].weight, get=lambda net: net[0].weight
        )

    def __call__(self, x):
        first, second = self.layers()
        return second(jnp.tanh(first(x)))


def tied_weights(net):
    first, second = net.layers()
    return first.weight, second.weight


def test_tied_weights_stay_tied():
    net = Tied((linear(0), linear(1)))
    learner = mtnet.t_net(net, alpha=0.3)
    theta = shaken(learner.init(KEYS[0]))
    support = small_batch(inputs=(3,), outputs=(3,), examples=2)
    first, second = tied_weights(eqx.filter_jit(learner.adapt)(theta, support, KEYS[1]))
    assert_close(first, second, rtol=0, atol=0)
    T, (W, *_) = next(iter(theta.T.values())), next(iter(theta.W.values()))
    loss = lambda A: mtnet.mse(  # noqa: E731
        mtnet.predict(tied_to(net, theta, A), support.x), support.y
    )
    A = T @ W
    assert_close(first, A - 0.3 * T @ T.T @ jax.grad(loss)(A))


def tied_to(net, theta, A):
    """The tied network at the start of a task, its shared weight being A."""
    parts = split(net)
    name = next(iter(parts.W))
    folded = mtnet.fold(theta.T, theta.W)
    return parts.join(folded | {name: (A, *folded[name][1:])}, theta.rest)


class TiedMLP(eqx.Module):
    """An MLP whose second layer reads the weight of its first."""

    mlp: eqx.nn.Shared

    def __init__(self):
        self.mlp = eqx.nn.Shared(
            eqx.nn.MLP(3, 3, 3, 1, key=KEYS[0]),
            where=lambda net: net.layers[1].weight,
            get=lambda net: net.layers[0].weight,
        )

    def __call__(self, x):
        return self.mlp()(x)


def test_tied_layers_of_an_mlp_learn_from_both_uses():
    """A layer whose weight is read elsewhere is not only called."""
    net = TiedMLP()
    learner = mtnet.t_net(net, alpha=0.3)
    theta = learner.init(KEYS[0])
    few, many = (small_batch(inputs=(3,), outputs=(3,), examples=n) for n in (2, 2))
    many = jax.tree.map(lambda a: jnp.concatenate([a, a]), many)  # the same loss, four examples
    assert_close(*(learner.adapt(theta, batch, KEYS[1]) for batch in (few, many)))


@pytest.mark.parametrize("net", [eqx.nn.Identity(), eqx.nn.LayerNorm(3), jnp.tanh])
def test_a_network_without_cells_is_refused(net):
    with pytest.raises(InputError, match="no cells"):
        split(net)


@pytest.mark.parametrize("option", ["cells", "meta_only", "freeze"])
def test_an_unknown_pattern_suggests_the_nearest(option):
    with pytest.raises(InputError, match=r"`frist` .*did you mean `first`"):
        split(Named(), **{option: ["frist"]})


def test_a_vector_named_in_full_is_a_cell():
    parts = split(Named(), cells=["first", "second", "last", "norm.weight"])
    assert parts.W.keys() == {"first", "second", "last", "norm.weight"}
    assert parts.rest.keys() == {"norm.bias"}


@pytest.mark.parametrize("count", [0, 3])
def test_a_support_set_must_be_whole(count):
    learner = mtnet.maml(Named())
    x, y = small_batch(inputs=(3,), outputs=(3,))
    with pytest.raises(InputError, match="support set"):
        learner.adapt(learner.init(KEYS[0]), mtnet.Batch(x[:count], y[: 2 * count]), KEYS[1])
