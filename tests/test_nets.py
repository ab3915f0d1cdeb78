"""Convolutions by patches, norms, the network of section 6.4, and what is learned with them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import CERTAIN, arrays, assert_close, differ, shaken
from hypothesis import example, given, settings, strategies as st
from jax.scipy.linalg import block_diag

import mtnet
from mtnet import Batch, Episode, InputError, predict
from mtnet.core import rules
from mtnet.core.losses import accuracy, cross_entropy
from mtnet.core.norms import BatchNorm, freeze_batch_stats, uses_batch_stats
from mtnet.core.options import EPSILON
from mtnet.nets import convolve
from mtnet.nets.conv import Conv2d, use_eqx_conv, use_fast_conv
from mtnet.nets.conv4 import conv4, conv_init, fold_norms
from mtnet.nets.pooled import can_pool, conv_pool, max_pool

KEY = jax.random.key(7)


apply = eqx.filter_jit(predict)


def normal(seed, *shape):
    """From NumPy, which has nothing to compile."""
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape))


def in_general(net, seed=4):
    """The same network, or the shapes of one, with other numbers."""
    return jax.tree.map(
        lambda a: normal(seed + a.size, *a.shape) if hasattr(a, "shape") else a, net
    )


class Small(eqx.Module):
    """Smooth, with a convolution, a norm and a head."""

    convolution: eqx.nn.Conv2d
    norm: BatchNorm
    head: eqx.nn.Linear

    def __init__(self, layer=Conv2d):
        one, two = jax.random.split(jax.random.key(1))
        self.convolution = layer(2, 3, 3, stride=2, padding="SAME", use_bias=False, key=one)
        self.norm = eqx.tree_at(lambda n: n.offset, BatchNorm(3), normal(2, 3))
        self.head = eqx.nn.Linear(3, 3, key=two)

    def __call__(self, x):
        x = jnp.tanh(self.norm(self.convolution(x)))
        return self.head(jnp.mean(x, (1, 2)))


# Convolutions

CHANNELS = [(2, 3, 1), (1, 2, 1), (4, 2, 2), (4, 4, 2), (3, 3, 3), (2, 4, 2)]  # in, out, groups
PADDINGS = [0, 1, "SAME", "VALID", "SAME_LOWER", (1, 2), ((0, 1), (0, 1)), ((2, 0), (1, 1))]
MODES = ["ZEROS", "REFLECT", "REPLICATE", "CIRCULAR"]


@eqx.filter_jit
def both(layer, x, direction):
    """Of a layer and its fast form: output, gradient, and Hessian times a direction.

    Derivatives are by weight, bias and input, of a curved function of the output.
    """

    def derivatives(layer, direction):
        weights, static = eqx.partition(layer, eqx.is_array)

        def curved(given):
            y = eqx.combine(given[0], static)(given[1])
            return jnp.sum(y * y * y), y

        def slope(given):
            gradient, y = jax.grad(curved, has_aux=True)(given)
            return sum(jax.tree.leaves(jax.tree.map(jnp.vdot, gradient, direction))), (gradient, y)

        return jax.grad(slope, has_aux=True)((weights, x))

    return use_fast_conv(derivatives(layer, direction)), derivatives(
        use_fast_conv(layer), use_fast_conv(direction)
    )


@settings(max_examples=8)  # a second of compilation each
@given(
    channels=st.sampled_from(CHANNELS),
    kernel=st.sampled_from([1, 2, 3, (1, 3), (3, 2)]),
    stride=st.sampled_from([1, 2, 3, (1, 2), (3, 1)]),
    padding=st.sampled_from(PADDINGS),
    dilation=st.sampled_from([1, 2, (1, 2), (2, 1)]),
    use_bias=st.booleans(),
    mode=st.sampled_from(MODES),
)
@example((2, 3, 1), 3, 2, "SAME", 1, False, "ZEROS")
@example((4, 4, 2), 3, (1, 2), "SAME_LOWER", 2, True, "ZEROS")
@example((3, 3, 3), (3, 2), 3, ((2, 0), (1, 1)), (1, 2), True, "ZEROS")
@example((2, 3, 1), (1, 3), 1, "SAME", (2, 1), True, "REFLECT")
def test_a_convolution_by_patches_is_the_convolution(
    channels, kernel, stride, padding, dilation, use_bias, mode
):
    inputs, outputs, groups = channels
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    options |= {"use_bias": use_bias, "padding_mode": mode, "key": KEY}
    shapes = eqx.filter_eval_shape(eqx.nn.Conv2d, inputs, outputs, kernel, **options)
    layer, x = in_general(shapes), normal(1, inputs, 6, 5)
    theirs, ours = both(layer, x, (in_general(arrays(layer), 5), normal(2, *x.shape)))
    assert type(use_fast_conv(layer)) is Conv2d
    assert theirs[1][1].size, "nothing to compare"
    assert_close(ours, theirs)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("size", [(2, 2), (4, 3), (1, 3)], ids=str)
def test_images_smaller_than_the_kernel_are_convolved(size, stride):
    layer = eqx.nn.Conv2d(2, 3, 5, stride, "SAME", key=KEY)
    x = normal(1, 2, *size)
    theirs, ours = both(layer, x, (in_general(arrays(layer), 5), normal(2, *x.shape)))
    assert_close(ours, theirs)


@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0)], ids=str)
@pytest.mark.parametrize("of", ["value", "gradient", "tangent"])
def test_tasks_side_by_side_are_convolved_as_alone(axes, of):
    """With pictures, kernels or both of their own; also in forward mode, and past the cache."""
    layer = Conv2d(2, 3, 3, stride=2, padding="SAME", use_bias=False, key=KEY)
    x = normal(1, 4, 2, 9, 8) if axes[0] == 0 else normal(1, 2, 9, 8)
    W = normal(2, 4, *layer.weight.shape) if axes[1] == 0 else normal(2, *layer.weight.shape)

    def value(x, W):
        return jnp.sum(eqx.tree_at(lambda c: c.weight, layer, W)(x) ** 3, (1, 2))

    def gradient(x, W):
        return jax.grad(lambda *both: jnp.sum(value(*both) ** 2), (0, 1))(x, W)

    def tangent(x, W):
        return jax.jvp(value, (x, W), (jnp.cos(x), jnp.sin(W)))[1]

    function = {"value": value, "gradient": gradient, "tangent": tangent}[of]
    one_by_one = [
        function(x[i] if axes[0] == 0 else x, W[i] if axes[1] == 0 else W) for i in range(4)
    ]
    together = jax.vmap(function, axes)(x, W)
    assert_close(together, jax.tree.map(lambda *a: jnp.stack(a), *one_by_one))


def test_the_cache_changes_no_number(monkeypatch):
    net = Small()
    loss = lambda both: jnp.sum(predict(*both) ** 2)  # noqa: E731
    gradient = jax.jit(lambda *both: jax.grad(loss)(both))
    x = normal(1, 5, 2, 6, 6)
    whole = gradient(net, x)
    monkeypatch.setattr(convolve, "CACHE", 0)
    jax.clear_caches()
    assert_close(gradient(net, x), whole)


@pytest.mark.parametrize("options", [{}, {"groups": 2, "use_bias": False}], ids=str)
def test_a_convolution_is_made_with_the_same_arguments(options):
    """And starts with the same weights from the same key."""
    made = Conv2d(2, 4, (3, 2), padding="SAME", key=KEY, **options)
    layer = eqx.nn.Conv2d(2, 4, (3, 2), padding="SAME", key=KEY, **options)
    assert eqx.tree_equal(made, use_fast_conv(layer))
    assert_close(made(normal(1, 2, 5, 5)), layer(normal(1, 2, 5, 5)))


class Own(eqx.nn.Conv2d):
    """Not for `fast` to touch: a subclass may do anything."""


@pytest.fixture(scope="module")
def mixed():
    """Convolutions of all sorts in lists and dicts, and other layers."""
    make = {
        "two": lambda: [eqx.nn.Conv2d(2, 3, 2, key=KEY), eqx.nn.Conv2d(4, 4, 3, groups=2, key=KEY)],
        "own": lambda: Own(1, 1, 1, key=KEY),
        "one-d": lambda: eqx.nn.Conv1d(2, 2, 2, key=KEY),
        "three-d": lambda: eqx.nn.Conv3d(2, 2, 2, key=KEY),
        "general": lambda: eqx.nn.Conv(2, 2, 2, 2, key=KEY),
        "back": lambda: eqx.nn.ConvTranspose2d(2, 2, 2, key=KEY),
        "linear": lambda: eqx.nn.Linear(2, 2, key=KEY),
    }
    layers = {name: in_general(eqx.filter_eval_shape(layer)) for name, layer in make.items()}
    return layers | {"function": jnp.tanh, "none": None}


def test_fast_exchanges_plain_convolutions_only(mixed):
    quick = use_fast_conv(mixed)
    assert [type(layer) for layer in quick["two"]] == [Conv2d, Conv2d]
    others = [name for name in mixed if name != "two"]
    assert eqx.tree_equal({n: quick[n] for n in others}, {n: mixed[n] for n in others})
    assert type(quick["own"]) is Own


def test_plain_is_the_way_back(mixed):
    back = use_eqx_conv(use_fast_conv(mixed))
    assert [type(layer) for layer in back["two"]] == [eqx.nn.Conv2d] * 2
    assert eqx.tree_equal(back, mixed)
    assert eqx.tree_equal(use_fast_conv(use_fast_conv(mixed)), use_fast_conv(mixed))
    assert eqx.tree_equal(use_eqx_conv(mixed), mixed)


def test_fast_networks_with_weights_of_their_own_for_each_task():
    """As after adaptation: `vmap` over weights, within `jit`, forwards and backwards."""
    x = normal(3, 4, 2, 7, 7)  # one example a task
    net = eqx.nn.Sequential(
        [
            eqx.nn.Conv2d(2, 4, 3, stride=2, padding="SAME", key=KEY),
            eqx.nn.Lambda(jnp.tanh),
            eqx.nn.Conv2d(4, 2, 2, groups=2, key=KEY),
        ]
    )
    tasks = jax.tree.map(lambda a: normal(a.size, 4, *a.shape), arrays(net))

    @eqx.filter_jit
    def results(change):
        def total(weights):
            y = jax.vmap(lambda w, x: change(eqx.combine(w, net))(x))(weights, x)
            return jnp.sum(jnp.sin(y)), y

        return jax.grad(total, has_aux=True)(tasks)

    assert_close(results(use_fast_conv), results(lambda net: net))


def test_same_with_stride_two_pads_the_end_of_even_sizes():
    """paper-vs-code row 25: TensorFlow's "SAME", which padding 1 on both sides is not."""
    layer = conv4((1, 8, 8), 2, filters=2).convolutions[1]
    x = normal(1, 2, 8, 8)

    def by_lax(*pads):
        rhs = use_eqx_conv(layer).weight
        return jax.lax.conv_general_dilated(x[None], rhs, (2, 2), pads)[0]

    assert_close(layer(x), by_lax((0, 1), (0, 1)))
    assert_close(layer.channels_last(jnp.moveaxis(x, 0, -1)), jnp.moveaxis(layer(x), 0, -1))
    assert differ(layer(x), by_lax((1, 1), (1, 1)))


# Norms


def textbook(x, offset, of=None):
    """(examples, channels, ...) by the formula, with the statistics of `of`."""
    of = x if of is None else of
    over = (0, *range(2, x.ndim))
    up = [slice(None), *[None] * (x.ndim - 2)]
    mean, var = np.mean(of, over)[tuple(up)], np.var(of, over)[tuple(up)]
    return (x - mean) / np.sqrt(var + EPSILON) + np.asarray(offset)[tuple(up)]


def norm_of(offset, axis=0):
    return eqx.tree_at(lambda n: n.offset, BatchNorm(len(offset), axis), offset)


@given(places=st.sampled_from([(), (3, 2), (5, 5)]), seed=st.integers(0, 99))
def test_a_norm_gives_mean_and_variance(places, seed):
    """The mean is the offset, the variance v / (v + 1e-3)."""
    spread = np.reshape([0.03, 0.3, 3.0], (3, *[1] * len(places)))
    x = spread * (np.asarray(normal(seed, 6, 3, *places)) + 2)
    offset = normal(seed + 1, 3)
    y = np.asarray(apply(norm_of(offset), jnp.asarray(x)))
    over = (0, *range(2, x.ndim))
    v = np.var(x, over)
    np.testing.assert_allclose(np.mean(y, over), offset, atol=1e-11)
    np.testing.assert_allclose(np.var(y, over), v / (v + 1e-3), rtol=1e-9)
    np.testing.assert_allclose(y, textbook(x, offset), rtol=1e-9, atol=1e-11)
    last = apply(norm_of(offset, -1), jnp.asarray(np.moveaxis(x, 1, -1)))
    np.testing.assert_allclose(np.moveaxis(last, -1, 1), y, rtol=1e-9, atol=1e-11)


def test_a_bias_before_a_norm_changes_nothing():
    x, norm, bias = normal(1, 4, 3, 5, 5), norm_of(normal(2, 3)), normal(3, 3)

    @jax.jit
    @jax.grad
    def slope(bias):
        return jnp.sum(jnp.sin(predict(norm, x + bias[:, None, None])))

    assert_close(apply(norm, x + bias[:, None, None]), apply(norm, x))
    np.testing.assert_allclose(slope(bias), 0, atol=1e-11)


@pytest.mark.parametrize("level", [0.0, 37.0, 300.0])
def test_a_norm_in_single_precision_at_any_level(level):
    """Close to the textbook where a channel varies, and finite where it does not."""
    x = (level + (1 + level / 10) * normal(1, 5, 2, 9, 9)).astype(jnp.float32)
    y = apply(norm_of(jnp.zeros(2, jnp.float32)), x)
    np.testing.assert_allclose(y, textbook(np.asarray(x, float), np.zeros(2)), atol=0.01)
    assert np.isfinite(apply(norm_of(jnp.zeros(2, jnp.float32)), x.at[:, 1].set(1.7 * level))).all()


def test_a_norm_works_in_a_sequential():
    x, norm = normal(1, 4, 3, 5, 5), BatchNorm(3)
    assert_close(apply(eqx.nn.Sequential([norm]), x), apply(norm, x))


settled_on = eqx.filter_jit(freeze_batch_stats)


def test_settled_predictions_know_the_support_set_only():
    net = Small()
    support, query = normal(1, 4, 2, 6, 6), 2 * normal(2, 5, 2, 6, 6) + 1
    settled = settled_on(net, support)
    assert type(settled) is Small
    together = apply(settled, query)
    alone = eqx.filter_jit(lambda net, x: net(x))  # no batch to speak of
    assert_close(together, jnp.stack([alone(settled, x) for x in query]))
    maps = jax.jit(jax.vmap(net.convolution))
    features = textbook(np.asarray(maps(query)), net.norm.offset, np.asarray(maps(support)))
    means = np.mean(np.tanh(features), (2, 3))
    assert_close(together, jnp.asarray(means @ np.asarray(net.head.weight).T + net.head.bias))
    assert differ(together, apply(net, query))


@pytest.mark.parametrize("deep", [False, True])
def test_settling_changes_nothing_on_the_support_set(deep):
    net = in_general(conv4((2, 6, 6), 3, filters=2)) if deep else Small()
    x = normal(1, 4, 2, 6, 6)
    settled = settled_on(net, x)
    assert_close(apply(settled, x), apply(net, x))
    assert_close(apply(settled, x[:1]), apply(settled, x)[:1])


@pytest.mark.parametrize("pool", [False, True])
def test_folded_norms_are_fixed_norms(pool):
    """Folding computes what fixed statistics compute, for other images too, one at a time."""
    net = in_general(conv4((2, 16, 18), 3, filters=2, pool=pool))
    x, others = normal(1, 4, 2, 16, 18), 2 * normal(2, 5, 2, 16, 18) + 1
    folded = eqx.filter_jit(fold_norms)(net, x)
    assert not uses_batch_stats(folded)
    assert_close(apply(folded, others), apply(settled_on(net, x), others))
    assert_close(apply(folded, others[:1]), apply(folded, others)[:1])


@pytest.mark.parametrize("pool", [False, True])
def test_centred_features_have_mean_zero(pool):
    """What the head receives does not change if all features of the batch move together."""
    net = in_general(conv4((2, 16, 18), 3, filters=2, pool=pool, centre=True))
    net = eqx.tree_at(lambda net: net.centre.offset, net, jnp.zeros_like(net.centre.offset))
    x = normal(1, 4, 2, 16, 18)
    features = eqx.tree_at(lambda net: net.head, net, eqx.nn.Identity())
    plain = eqx.tree_at(lambda net: net.centre, features, eqx.nn.Identity())
    raw = apply(plain, x)
    assert_close(apply(features, x), raw - jnp.mean(raw, 0))
    assert_close(apply(settled_on(net, x), x), apply(net, x))


def test_settling_again_forgets_the_first_time():
    net, (a, b) = Small(), normal(1, 2, 4, 2, 6, 6)
    assert_close(settled_on(settled_on(net, a), b), settled_on(net, b))


def test_a_network_without_norms_is_settled():
    net = eqx.nn.Linear(2, 3, key=KEY)
    assert freeze_batch_stats(net, normal(1, 4, 2)) is net


def test_a_norm_used_twice_is_refused(unchecked):
    norm = BatchNorm(3)

    class Twice(eqx.Module):
        norm: BatchNorm

        def __call__(self, x):
            return self.norm(2 * self.norm(x))

    x = normal(1, 4, 3)
    with pytest.raises(InputError, match="used twice") as caught:
        freeze_batch_stats(Twice(norm), x)
    assert "\n" not in str(caught.value)
    predict(Twice(norm), x)  # normalised by its batch it may be
    freeze_batch_stats(norm, x)  # and the refusal leaves nothing behind


# The network of section 6.4


def test_conv4_of_omniglot():
    net = conv4((1, 28, 28), 5)
    x, sides = jax.ShapeDtypeStruct((28, 28, 1), float), []
    for layer in net.convolutions:
        x = jax.eval_shape(layer.channels_last, x)
        sides.append(x.shape)
    assert sides == [(14, 14, 64), (7, 7, 64), (4, 4, 64), (2, 2, 64)]
    batch = jax.ShapeDtypeStruct((3, 1, 28, 28), float)
    assert jax.eval_shape(lambda x: predict(net, x), batch).shape == (3, 5)
    assert net.head.in_features == 64


def test_conv4_of_mini_imagenet():
    net = conv4((3, 84, 84), 5, filters=32, pool=True)
    batch = jax.ShapeDtypeStruct((2, 3, 84, 84), float)
    assert jax.eval_shape(lambda x: predict(net, x), batch).shape == (2, 5)
    assert net.head.in_features == 800


def test_conv4_refuses_what_four_poolings_leave_nothing_of():
    with pytest.raises(InputError, match="16x16 or more, not 15x40") as caught:
        conv4((1, 15, 40), 5, pool=True)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("pool", [False, True])
def test_conv4_is_convolution_norm_relu_four_times(pool):
    net = in_general(conv4((2, 16, 18), 3, filters=2, pool=pool))
    x = normal(1, 4, 2, 16, 18)

    @jax.jit
    def literally(x):
        for layer, norm in zip(use_eqx_conv(net).convolutions, net.norms, strict=True):
            x = jax.nn.relu(predict(norm_of(norm.offset), jax.vmap(layer)(x)))
            if pool:
                x = jax.vmap(eqx.nn.MaxPool2d(2, 2))(x)
        x = jnp.moveaxis(x, 1, -1).reshape(len(x), -1) if pool else jnp.mean(x, (2, 3))
        return jax.vmap(net.head)(x)

    assert_close(apply(net, x), literally(x))


@pytest.mark.parametrize("shape", [(8, 6), (7, 5)])
def test_pooling_takes_the_largest_of_four(shape):
    x = normal(1, *shape, 3)
    y = max_pool(x)
    two = (2, 2, 1)
    assert jnp.array_equal(y, jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, two, two, "VALID"))
    assert jnp.array_equal(jax.nn.relu(y), max_pool(jax.nn.relu(x)))


@pytest.mark.parametrize("head_sd", [None, 0.3])
def test_published_initial_weights(head_sd):
    net = conv4((1, 28, 28), 20, filters=32)
    learner = mtnet.mt_net(net, loss=cross_entropy, initialise=conv_init(head_sd))
    start = jax.jit(lambda key: learner.init(key).W)
    W = jax.tree.map(np.asarray, start(KEY))
    assert len(W) == 5
    assert not np.allclose(W["convolutions.1"][0], W["convolutions.2"][0])
    assert not np.allclose(W["head"][0], start(jax.random.key(8))["head"][0])
    for name, (w, *bias) in W.items():
        if name != "head":
            limit = (6 / (9 * ((1 if name.endswith("0") else 32) + 32))) ** 0.5
        elif head_sd is None:
            limit = (6 / (32 + 20)) ** 0.5
        else:
            limit = 3**0.5 * head_sd  # of the uniform numbers with this spread
        bounded = name != "head" or head_sd is None
        assert bounded == bool(np.all(abs(w) <= limit))
        assert abs(np.mean(w)) < 4 * limit / (3 * w.size) ** 0.5
        np.testing.assert_allclose(np.var(w), limit**2 / 3, rtol=6 / w.size**0.5)
        assert len(bias) == (name == "head")
        assert not any(np.any(b) for b in bias)


# The step


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("inputs", [(2,), (3, 3, 2)], ids=str)
def test_one_product_or_two_make_the_same_step(inputs, blocks, masked, monkeypatch):
    """alpha T (M * (T' g)), literally, for matrices with fewer and with more inputs than rows."""
    n, used = 4, []
    monkeypatch.setattr(rules, "metric", lambda *a, f=rules.metric: used.append(1) or f(*a))
    T = normal(1, blocks, n // blocks, n // blocks)
    D = block_diag(*T)  # all of T
    M = jnp.array([1.0, 0.0, 0.25, 1.0]) if masked else None
    g = normal(2, n, *inputs), normal(3, n, *[1] * (len(inputs) - 1))

    def literally(g):
        u = D.T @ g.reshape(n, -1)
        return (0.3 * D @ (u if M is None else M[:, None] * u)).reshape(g.shape)

    T = T[0] if blocks == 1 else T
    assert_close(rules.step(g, 0.3, T, M), tuple(map(literally, g)))
    assert bool(used) == (g[0].size > n * n)
    rates = jax.tree.map(jnp.exp, g)
    expected = tuple(r * literally(gi) / 0.3 for r, gi in zip(rates, g, strict=True))
    assert_close(rules.step(g, rates, T, M), expected)


@pytest.mark.parametrize("blocks", [1, 2])
def test_the_metric_is_t_m_t_transposed(blocks):
    T, M = normal(1, blocks, 4 // blocks, 4 // blocks), jnp.array([1.0, 0.0, 0.25, 1.0])
    D, given = block_diag(*T), T[0] if blocks == 1 else T
    whole = lambda P: P if blocks == 1 else block_diag(*P)  # noqa: E731
    assert_close(whole(rules.metric(given, M)), D @ jnp.diag(M) @ D.T)
    assert_close(whole(rules.metric(given, None)), D @ D.T)


# Learning


def pictures(seed, examples=6):
    return Batch(normal(seed, examples, 2, 5, 5), jnp.arange(examples) % 3)


EPISODE = Episode(pictures(1), pictures(2))
OPTIONS = {"loss": cross_entropy, "alpha": 0.5, "steps": 2}


@pytest.fixture(scope="module")
def mt_net():
    """An MT-net on the small convolutional network, and meta-parameters in general position."""
    learner = mtnet.mt_net(Small(), **OPTIONS)
    return learner, shaken(learner.init(KEY))


def test_adaptation_keeps_a_convolutional_network_its_type(mt_net):
    learner, theta = mt_net
    adapted = eqx.filter_jit(learner.adapt)(theta, EPISODE.support, KEY)
    assert type(adapted) is Small
    assert type(adapted.convolution) is Conv2d
    assert jax.tree.structure(adapted) == jax.tree.structure(Small())
    assert_close(adapted.norm.offset, theta.rest["norm.offset"])
    assert predict(adapted, EPISODE.query.x).shape == (6, 3)


def test_plain_and_fast_networks_adapt_alike(mt_net):
    """Cells have the same names and rows, so the same key gives the same masks."""
    learner, theta = mt_net
    slow = mtnet.mt_net(use_eqx_conv(Small()), **OPTIONS)
    (w,) = theta.W["convolution"]
    same = theta._replace(W=theta.W | {"convolution": (jnp.moveaxis(w, -1, 1),)})
    adapted = eqx.filter_jit(slow.adapt)(same, EPISODE.support, KEY)
    assert type(adapted.convolution) is eqx.nn.Conv2d
    assert_close(use_fast_conv(adapted), eqx.filter_jit(learner.adapt)(theta, EPISODE.support, KEY))


def test_a_convolutional_mt_net_contains_maml(mt_net):
    learner, theta = mt_net
    maml = mtnet.maml(Small(), **OPTIONS)
    fresh = learner.init(KEY)
    sure = jax.tree.map(lambda z: z + CERTAIN, theta.zeta)
    plainly = fresh._replace(W=theta.W, rest=theta.rest, zeta=sure)
    simple = maml.init(KEY)._replace(W=theta.W, rest=theta.rest)
    ours, theirs = (
        eqx.filter_jit(one.adapt)(t, EPISODE.support, KEY)
        for one, t in ((learner, plainly), (maml, simple))
    )
    assert_close(ours, theirs, rtol=1e-12, atol=1e-14)
    assert differ(ours.convolution.weight, theta.W["convolution"][0])


def test_the_meta_gradient_of_a_convolutional_mt_net_matches_differences(mt_net):
    learner, theta = mt_net
    slope = jax.jit(jax.grad(learner.loss))(theta, EPISODE, KEY)
    loss = jax.jit(jax.vmap(lambda theta: learner.loss(theta, EPISODE, KEY)))
    still = jax.tree.map(jnp.zeros_like, theta)
    h = jnp.array([1e-5, -1e-5])
    for field in ("W", "T", "rest"):
        direction = still._replace(**{field: getattr(shaken(still, seed=9), field)})
        ends = jax.tree.map(lambda t, d: t + jnp.multiply.outer(h, d), theta, direction)
        up, down = loss(ends)
        expected = (up - down) / (h[0] - h[1])
        assert abs(expected) > 1e-4, f"{field}: nothing to compare"
        parts = jax.tree.map(jnp.vdot, slope, direction)
        np.testing.assert_allclose(sum(jax.tree.leaves(parts)), expected, rtol=1e-6)


# Losses

value_and_slope = jax.jit(jax.value_and_grad(cross_entropy))
percent = jax.jit(accuracy)


@given(
    values=st.lists(st.floats(-20, 20), min_size=12, max_size=12),
    labels=st.lists(st.integers(0, 2), min_size=4, max_size=4),
)
def test_cross_entropy_and_accuracy_are_their_formulas(values, labels):
    logits, labels = np.reshape(values, (4, 3)), np.array(labels)
    p = np.exp(logits) / np.sum(np.exp(logits), axis=1, keepdims=True)
    value, slope = value_and_slope(logits, labels)
    np.testing.assert_allclose(value, -np.mean(np.log(p[range(4), labels])), rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(np.sum(slope, axis=1), 0, atol=1e-14)
    np.testing.assert_allclose(slope, (p - np.eye(3)[labels]) / 4, atol=1e-12)
    right = np.argmax(logits, axis=1) == labels
    np.testing.assert_allclose(percent(logits, labels), 100 * np.mean(right))


def test_cross_entropy_of_large_logits_is_finite():
    logits = jnp.array([[1e4, -1e4, 0.0]])
    values = [cross_entropy(logits, jnp.array([label])) for label in range(3)]
    np.testing.assert_allclose(values, [0, 2e4, 1e4])


def pooled_by_definition(W: jax.Array, x: jax.Array) -> jax.Array:
    """Convolution, norm, max-pooling and ReLU of a batch, one after the other."""
    y = jax.lax.conv_general_dilated(
        x, W, (1, 1), "SAME", dimension_numbers=("NHWC", "OHWI", "NHWC")
    )
    mean, var = jnp.mean(y, (0, 1, 2)), jnp.var(y, (0, 1, 2))
    return jax.nn.relu(jax.vmap(max_pool)((y - mean) / jnp.sqrt(var + EPSILON)))


def test_pooling_before_the_norm_changes_neither_value_nor_derivatives():
    with jax.enable_x64(True):
        conv = Conv2d(3, 4, 3, padding="SAME", use_bias=False, key=KEY)
        norm, x = BatchNorm(4, axis=-1), jax.random.normal(KEY, (3, 6, 8, 3), jnp.float64)
        norm = eqx.tree_at(lambda n: n.offset, norm, jnp.zeros(4))
        W, g = (a.astype(jnp.float64) for a in (conv.weight, jax.random.normal(KEY, (3, 3, 4, 4))))
        assert can_pool(conv, x.shape[1:])

        def pooled(W: jax.Array, x: jax.Array) -> jax.Array:
            block = lambda x: jax.nn.relu(norm.normalise(*conv_pool(W, x)))  # noqa: E731
            return jax.vmap(block, axis_name="batch")(x)

        def values(f):
            """Outputs, gradient, and the gradient of a gradient step's result."""
            loss = lambda W, x: jnp.sum(g * f(W, x))  # noqa: E731
            after = lambda W, x: loss(W - 0.1 * jax.grad(loss)(W, x), x)  # noqa: E731
            both = jax.jit(
                lambda W, x: (f(W, x), jax.grad(loss, (0, 1))(W, x), jax.grad(after)(W, x))
            )
            per_task = jax.jit(jax.vmap(jax.grad(loss), (0, None)))
            return both(W, x), per_task(jnp.stack([W, -W]), x)

        for ours, theirs in zip(
            *(jax.tree.leaves(values(f)) for f in (pooled, pooled_by_definition)), strict=True
        ):
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("shape", [(7, 8, 3), (8, 8, 5)])
def test_other_shapes_take_the_general_path(shape):
    conv = Conv2d(shape[2], 4, 3, padding="SAME", use_bias=False, key=KEY)
    assert not can_pool(conv, shape)
