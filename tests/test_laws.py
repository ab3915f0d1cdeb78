"""What every registered method must obey, and how the methods contain one another."""

from functools import cache, partial

import equinox as eqx
import helpers
import jax
import jax.numpy as jnp
import literal
import numpy as np
import optax
import pytest
from helpers import Scaled, assert_close, certain, differ, shaken, small_episode, small_net

import mtnet
from mtnet import Batch, Episode, cross_entropy, mse, predict
from mtnet.core import probe
from mtnet.core.rules import RULES
from mtnet.methods import METHODS, known, learner as learner_module, make

KEY = jax.random.key(7)
NET = small_net()
EPISODE = small_episode()
WAYS, FEATURES, CLASSES = 3, 4, 6


def labelled(seed, labels):
    return Batch(jax.random.normal(jax.random.key(seed), (len(labels), 2)), jnp.array(labels))


CLASSED = Episode(labelled(1, [0, 1, 2, 2, 1]), labelled(2, [2, 0, 1, 1, 0]))
every_method = pytest.mark.parametrize("name", METHODS)
every_rule = pytest.mark.parametrize("name", RULES)
with_steps = pytest.mark.parametrize("name", [n for n, m in METHODS.items() if m.steps])
masked = [name for name in RULES if RULES[name].mask]
by_query_loss = sorted(
    METHODS.keys() - {"map-ssvm", "map-direct", "l-maml", "fine-tune", "nearest-neighbour"}
)


class Compiled:
    """A method on a small network: its functions, compiled once, and how often they are traced.

    Methods for regression learn numbers, the others classes.
    """

    def __init__(self, name, **options):
        self.traces = 0
        method = METHODS[name]
        self.episode = EPISODE if method.regression else CLASSED
        self.loss = mse if method.regression else cross_entropy
        outputs = FEATURES if method.embeds else 2
        given = {"loss": self.loss, "alpha": 0.1, "steps": 2, "features": FEATURES, "outputs": 2}
        given |= {"ways": None if method.regression else WAYS}
        self.learner = make(name, self.net(outputs), **(known(name, given) | options))
        self.theta = shaken(self.learner.init(jax.random.key(3)))
        self.adapt = eqx.filter_jit(self.learner.adapt)
        self.path = eqx.filter_jit(self.learner.trajectory)
        self.value_and_gradient = jax.jit(jax.value_and_grad(self.learner.loss))
        self.losses = jax.jit(jax.vmap(lambda theta: self.learner.loss(theta, self.episode, KEY)))

    def net(self, outputs):
        """`small_net`, counting how often it is traced."""

        def tanh(x):
            self.traces += 1
            return jnp.tanh(x)

        mlp = eqx.nn.MLP(2, outputs, 5, 1, activation=tanh, key=jax.random.key(1))
        return Scaled(mlp, jnp.linspace(0.7, 1.3, outputs))

    def adapted(self, support=None, key=KEY):
        return self.adapt(self.theta, self.episode.support if support is None else support, key)

    def answers(self, *given):
        return predict(self.adapted(*given), self.episode.query.x)

    def gradient(self, *given):
        return self.value_and_gradient(*given)[1]


compiled = cache(Compiled)


@every_method
def test_same_key_same_result_and_one_compilation(name):
    case = compiled(name)
    once = case.adapted()
    traces = case.traces
    assert eqx.tree_equal(once, case.adapted())
    sgd = optax.sgd(0.1)
    updates, _ = sgd.update(case.theta, sgd.init(case.theta), case.theta)
    later = optax.apply_updates(case.theta, updates)
    assert differ(once, case.adapt(later, case.episode.query, jax.random.key(8)))
    assert case.traces == traces > 0


@every_method
def test_mtnet_adapt_compiles_once(name):
    case = compiled(name)
    once = mtnet.adapt(case.learner, case.theta, case.episode.support, KEY)
    traces = case.traces
    mtnet.adapt(case.learner, case.theta, case.episode.query, jax.random.key(8))
    assert case.traces == traces
    assert_close(once, case.adapted())


@pytest.mark.parametrize("name", masked)
def test_another_key_another_mask(name):
    case = compiled(name)
    adapted = [case.adapted(None, jax.random.key(s)) for s in range(4)]
    assert any(differ(adapted[0], other) for other in adapted[1:])


@every_method
def test_the_order_of_support_examples_does_not_matter(name):
    case = compiled(name)
    backwards = jax.tree.map(lambda a: a[::-1], case.episode.support)
    assert_close(case.answers(), case.answers(backwards))
    assert differ(case.answers(), case.answers(case.episode.query))


@with_steps
def test_no_steps_give_the_meta_learned_network(name):
    """The support set has no influence; weights are T W and T b, the rest is as meta-learned."""
    case = compiled(name, steps=0)
    adapted = case.adapted()
    assert_close(adapted, case.adapted(case.episode.query))
    if isinstance(case.theta, mtnet.Theta):
        for i, layer in enumerate(adapted.mlp.layers):
            W, b = case.theta.W[f"mlp.layers.{i}"]
            T = case.theta.T.get(f"mlp.layers.{i}", jnp.eye(len(W)))
            assert_close((layer.weight, layer.bias), (T @ W, T @ b))
        assert_close(adapted.scale, case.theta.rest["scale"])


@every_rule
def test_adaptation_keeps_the_type(name):
    case = compiled(name)
    adapted, net = case.adapted(), small_net()
    assert type(adapted) is type(net)
    like = lambda net: [(a.shape, a.dtype) for a in jax.tree.leaves(eqx.filter(net, eqx.is_array))]  # noqa: E731
    assert like(adapted) == like(net)


@pytest.mark.parametrize(
    ("name", "draw"), [*((name, "task") for name in METHODS), ("mt-net", "step")]
)
def test_a_trajectory_agrees_with_adaptation_of_every_length(name, draw):
    options = {} if draw == "task" else {"draw": draw}
    case = compiled(name, **options)
    path = case.path(case.theta, case.episode.support, KEY, 2)
    stage = lambda n: jax.tree.map(lambda a: a[n] if eqx.is_array(a) else a, path)  # noqa: E731
    assert_close(stage(-1), case.adapted())
    if METHODS[name].steps:
        for steps in (0, 1):
            shorter = compiled(name, steps=steps, **options)
            assert_close(stage(steps), shorter.adapt(case.theta, case.episode.support, KEY))


def slopes(case, field):
    """The derivative of the loss along a direction in one field: by differences, and ours."""
    slope = case.gradient(case.theta, case.episode, KEY)
    assert all(jnp.all(jnp.isfinite(g)) for g in jax.tree.leaves(slope))
    direction = shaken(jax.tree.map(jnp.zeros_like, case.theta), seed=9)
    still = jax.tree.map(jnp.zeros_like, direction)
    direction = still._replace(**{field: getattr(direction, field)})
    h = jnp.array([1e-5, -1e-5])
    ends = jax.tree.map(lambda t, d: t + jnp.multiply.outer(h, d), case.theta, direction)
    up, down = case.losses(ends)
    expected = (up - down) / (h[0] - h[1])
    assert abs(expected) > 1e-5, f"{field}: nothing to compare"
    return expected, sum(jax.tree.leaves(jax.tree.map(jnp.vdot, slope, direction)))


@pytest.mark.parametrize("name", sorted(METHODS.keys() - {"meta-lstm"}))
def test_the_meta_gradient_is_finite_and_matches_differences(name):
    """Not of zeta, whose straight-through gradient is an estimator."""
    case = compiled(name)
    for field in case.theta._fields:
        if field != "zeta" and jax.tree.leaves(getattr(case.theta, field)):
            np.testing.assert_allclose(*slopes(case, field), rtol=1e-6)


@pytest.mark.parametrize("name", ["mt-net", "mt-net-full"])
def test_the_meta_gradient_of_soft_masks_matches_differences(name):
    case = compiled(name, relaxation="soft")
    np.testing.assert_allclose(*slopes(case, "zeta"), rtol=1e-5)


def test_the_determinant_of_l_maml_is_differentiated():
    case = compiled("l-maml", eta=0.1)
    np.testing.assert_allclose(*slopes(case, "W"), rtol=1e-5)
    plain = compiled("maml").value_and_gradient(case.theta, case.episode, KEY)[0]
    assert differ(case.value_and_gradient(case.theta, case.episode, KEY)[0], plain, by=1e-2)


@pytest.mark.parametrize("name", by_query_loss)
def test_meta_training_minimises_the_query_loss_after_adaptation(name):
    case = compiled(name)
    value, _ = case.value_and_gradient(case.theta, case.episode, KEY)
    assert_close(value, case.loss(case.answers(), case.episode.query.y))


@every_rule
def test_first_order_moves_alike_and_meta_learns_otherwise(name):
    exact, first = compiled(name, steps=1), compiled(name, steps=1, first_order=True)
    assert_close(
        exact.adapt(exact.theta, EPISODE.support, KEY),
        first.adapt(exact.theta, EPISODE.support, KEY),
    )
    gradients = [case.gradient(exact.theta, EPISODE, KEY).W for case in (exact, first)]
    assert differ(*gradients, by=1e-4)


@pytest.mark.parametrize(
    ("rich", "plain"),
    [
        ("meta-sgd", "maml"),
        ("m-net", "maml"),
        ("m-net-full", "maml"),
        ("t-net", "maml"),
        ("mt-net", "t-net"),
        ("mt-net-full", "t-net"),
    ],
)
def test_without_its_own_part_a_method_is_the_plainer_one(rich, plain):
    """T = I, M = 1 and equal rates are MAML; M = 1 is a T-net."""
    case, simple = compiled(rich), compiled(plain)
    same = {f: getattr(simple.theta, f) for f in ("W", "rest")}
    if simple.theta.T:
        same["T"] = simple.theta.T
    theta = case.learner.init(KEY)._replace(**same)
    theta = theta._replace(zeta=jax.tree.map(lambda z: z + helpers.CERTAIN, theta.zeta))
    assert_close(
        case.adapt(theta, EPISODE.support, KEY),
        simple.adapt(simple.theta, EPISODE.support, KEY),
        rtol=1e-12,
        atol=1e-14,
    )
    slopes = (c.gradient(t, EPISODE, KEY) for c, t in ((case, theta), (simple, simple.theta)))
    assert_close(*({f: getattr(slope, f) for f in same} for slope in slopes))


class ConvNet(eqx.Module):
    """The network of `literal.convolutional`."""

    layers: list

    def __init__(self, key):
        one, two = jax.random.split(key)
        self.layers = [
            eqx.nn.Conv2d(2, 3, 2, key=one),
            eqx.nn.Conv2d(3, 2, 2, key=two),
        ]

    def __call__(self, x):
        first, second = self.layers
        return second(jnp.tanh(first(x)))


LITERAL = {
    "dense": (NET.mlp, literal.perceptron, (2,), (2,)),
    "convolutional": (ConvNet(jax.random.key(1)), literal.convolutional, (2, 4, 4), (2, 2, 2)),
}


@pytest.mark.parametrize(
    ("name", "kind", "steps"),
    [
        *(("mt-net", kind, steps) for kind in LITERAL for steps in (1, 3)),
        ("mt-net-full", "dense", 3),
    ],
)
def test_weight_space_is_activation_space(name, kind, steps):
    """`T (W x + b)` and eq. (mt_update) give the same value, weights and meta-gradient."""
    net, forward, inputs, outputs = LITERAL[kind]
    episode = small_episode(inputs=inputs, outputs=outputs)
    learner = make(name, net, alpha=0.1, steps=steps)
    theta = shaken(learner.init(KEY))
    zeta, M = certain(theta.zeta)
    theta = theta._replace(zeta=zeta)
    mask = literal.row_mask if RULES[name].mask == "row" else lambda m, W, b: m

    def cells(theta):
        return [literal.Cell(W, b, theta.T[c], mask(M[c], W, b)) for c, (W, b) in theta.W.items()]

    def literally(theta):
        adapted = literal.learn(forward, cells(theta), *episode.support, 0.1, steps)
        folded = [tuple(jnp.tensordot(c.T, w, axes=1) for w in (c.W, c.b)) for c in adapted]
        return literal.mean_square(forward, adapted, *episode.query), folded

    def ours(theta):
        adapted = learner.adapt(theta, episode.support, KEY)
        folded = [(layer.weight, layer.bias) for layer in adapted.layers]
        return mse(predict(adapted, episode.query.x), episode.query.y), folded

    both = jax.jit(lambda t: [jax.value_and_grad(f, has_aux=True)(t) for f in (ours, literally)])
    (our_value, our_slope), (value, slope) = both(theta)
    assert_close(our_value, value)
    assert_close((our_slope.W, our_slope.T), (slope.W, slope.T))


@pytest.mark.parametrize(
    ("name", "draw"), [("mt-net", "task"), ("mt-net", "step"), ("mt-net-full", "task")]
)
def test_adapt_can_return_the_masks_it_drew_and_the_losses_of_every_step(name, draw):
    """The literal update with these masks gives the adapted weights, and passes these losses."""
    net, steps = NET.mlp, 2
    learner = make(name, net, alpha=0.1, steps=steps, draw=draw)
    theta = shaken(learner.init(KEY))
    model, info = mtnet.adapt(learner, theta, tuple(EPISODE.support), KEY, return_info=True)
    assert_close(model, mtnet.adapt(learner, theta, EPISODE.support, KEY))
    mask = literal.row_mask if RULES[name].mask == "row" else lambda m, W, b: m
    Wb, losses = dict(theta.W), []
    for step in range(steps + 1):
        M = jax.tree.map(lambda m, n=step: m[min(n, steps - 1)], info.masks)
        M = M if draw == "step" else info.masks
        cells = [literal.Cell(*Wb[c], theta.T[c], mask(M[c], *Wb[c])) for c in Wb]
        losses.append(literal.mean_square(literal.perceptron, cells, *EPISODE.support))
        if step < steps:
            moved = literal.learn(literal.perceptron, cells, *EPISODE.support, 0.1, 1)
            Wb = {c: (cell.W, cell.b) for c, cell in zip(Wb, moved, strict=True)}
    assert_close(info.losses, jnp.stack(losses))
    for layer, (c, (W, b)) in zip(model.layers, Wb.items(), strict=True):
        assert_close((layer.weight, layer.bias), (theta.T[c] @ W, theta.T[c] @ b))


def test_a_method_without_masks_or_steps_has_nothing_to_return():
    case = compiled("prototypical")
    with pytest.raises(mtnet.InputError, match="remove return_info"):
        mtnet.adapt(case.learner, case.theta, case.episode.support, KEY, return_info=True)


def weight_side(monkeypatch):
    """From here on, no cell is known to be only called: T acts on matrices alone."""
    split = learner_module.split
    monkeypatch.setattr(
        learner_module, "split", lambda *a, **k: split(*a, **k)._replace(called=frozenset())
    )


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("t-net", {}),
        ("mt-net", {"steps": 1, "meta_only": ["mlp.layers.1.bias"]}),
        ("mt-net", {"relaxation": "soft", "draw": "step"}),
        ("mt-net", {"first_order": True}),
    ],
    ids=str,
)
def test_both_sides_of_a_linear_cell_agree(name, options, monkeypatch):
    """A Probe makes the same steps and meta-gradients, of T and zeta too, as T on the weights."""
    probed = set()
    insert = probe.insert
    monkeypatch.setattr(probe, "insert", lambda net, E, *a: probed.update(E) or insert(net, E, *a))

    def results():
        probed.clear()
        learner = make(name, NET, **{"alpha": 0.3, "steps": 2} | options)
        theta = shaken(learner.init(KEY))

        @jax.jit
        @partial(jax.grad, has_aux=True)
        def loss_and_weights(theta):
            adapted = learner.adapt(theta, EPISODE.support, KEY)
            return mse(predict(adapted, EPISODE.query.x), EPISODE.query.y), helpers.arrays(adapted)

        return loss_and_weights(theta)

    light = results()
    assert probed == (set() if options.get("first_order") else {"mlp.layers.1"})
    weight_side(monkeypatch)
    heavy = results()
    assert not probed
    assert_close(light, heavy)


@pytest.mark.parametrize("outputs", [2, "scalar"])
@pytest.mark.parametrize("use_bias", [True, False])
def test_probes_leave_every_linear_layer_its_shape(outputs, use_bias, monkeypatch):
    net = eqx.nn.MLP(2, outputs, 5, 1, use_bias=use_bias, key=KEY)
    support = helpers.small_batch(outputs=() if outputs == "scalar" else (2,))

    def adapted():
        learner = make("t-net", net)
        return eqx.filter_jit(learner.adapt)(learner.init(KEY), support, KEY)

    light = adapted()
    weight_side(monkeypatch)
    assert_close(light, adapted())
