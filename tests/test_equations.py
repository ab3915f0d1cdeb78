"""The paper's equations and propositions, one by one."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import CERTAIN, assert_close, differ, shaken, small_batch, small_episode, small_net
from scipy.stats import ks_2samp

import mtnet
from mtnet.core import masks

ALPHA = 0.1
N, INPUTS = 4, 3


def cosh(prediction, target):
    """A loss that is not quadratic."""
    return jnp.sum(jnp.cosh(prediction - target))


class OneCell:
    """A single cell y = T W x = A x without bias, and one example to learn it from."""

    def __init__(self, T=None, m=None, seed=0):
        keys = iter(jax.random.split(jax.random.key(seed), 5))
        net = eqx.nn.Sequential([eqx.nn.Linear(INPUTS, N, use_bias=False, key=next(keys))])
        self.learner = mtnet.mt_net(net, alpha=ALPHA, loss=cosh)
        self.T = jax.random.normal(next(keys), (N, N)) if T is None else T
        self.A = jax.random.normal(next(keys), (N, INPUTS))
        self.x = jax.random.normal(next(keys), (INPUTS,))
        self.target = jax.random.normal(next(keys), (N,))
        self.m = jnp.ones(N) if m is None else jnp.asarray(m, float)
        W = jnp.linalg.solve(self.T, self.A)
        self.theta = self.learner.init(jax.random.key(0))._replace(
            W={"layers.0": (W,)},
            T={"layers.0": self.T},
            zeta={"layers.0": CERTAIN * (2 * self.m - 1)},
        )
        self.y = self.A @ self.x

    def gradient(self, target):
        """dL/dA."""
        return jax.grad(lambda A: cosh(A @ self.x, target))(self.A)

    def change(self, target):
        """y_new - y, by the library."""
        support = mtnet.Batch(self.x[None], target[None])
        adapted = self.learner.adapt(self.theta, support, jax.random.key(0))
        return adapted(self.x) - self.y


def test_a_t_net_steps_by_t_t_transposed():
    """Eq. (tnet_update): y_new = y - alpha (T T') dL/dA x."""
    cell = OneCell()
    expected = -ALPHA * (cell.T @ cell.T.T) @ cell.gradient(cell.target) @ cell.x
    assert_close(cell.change(cell.target), expected)


def test_an_mt_net_steps_by_the_masked_metric():
    """Eq. (sumnet_metric): y_new = y - alpha (T * M') (M * T') dL/dA x, M square."""
    cell = OneCell(m=[1, 0, 1, 0])
    M = jnp.outer(cell.m, jnp.ones(N))
    metric = (cell.T * M.T) @ (M * cell.T.T)
    expected = -ALPHA * metric @ cell.gradient(cell.target) @ cell.x
    assert_close(cell.change(cell.target), expected)


def test_the_length_of_a_change():
    """|dy|^2 = (dW x)' (T' T) (dW x), section 3.1, with dW from eq. (mt_update)."""
    cell = OneCell(m=[0, 1, 1, 1])
    dW = -ALPHA * cell.m[:, None] * (cell.T.T @ cell.gradient(cell.target))
    dWx = dW @ cell.x
    assert_close(jnp.sum(cell.change(cell.target) ** 2), dWx @ (cell.T.T @ cell.T) @ dWx)


def subspace(d, seed):
    """A random basis of R^n whose first d vectors span U."""
    return jax.random.normal(jax.random.key(seed), (N, N)), (jnp.arange(N) < d).astype(float)


@pytest.mark.parametrize("d", range(1, N + 1))
def test_proposition_1_any_subspace_can_be_learned(d):
    """T = [v_1 ... v_n], masks on the first d rows: y_new - y spans U, for all losses."""
    V, m = subspace(d, seed=d)
    cell = OneCell(T=V, m=m, seed=d)
    targets = jax.random.normal(jax.random.key(d), (3 * N, N))
    changes = jax.jit(jax.vmap(cell.change))(targets)
    assert np.linalg.matrix_rank(changes, tol=1e-8) == d
    Q, _ = jnp.linalg.qr(V[:, :d])
    assert_close(changes @ Q @ Q.T, changes)


@pytest.mark.parametrize("d", range(1, N + 1))
def test_proposition_2_any_metric_in_any_subspace_can_be_learned(d):
    """T = [V H^-1, v_{d+1} ... v_n] with G = H' H: steepest descent under g within U."""
    V, m = subspace(d, seed=10 + d)
    U = V[:, :d]
    root = jax.random.normal(jax.random.key(d), (d, d))
    G = root @ root.T + 0.1 * jnp.eye(d)
    H = jnp.linalg.cholesky(G).T
    T = jnp.concatenate([U @ jnp.linalg.inv(H), V[:, d:]], axis=1)
    cell = OneCell(T=T, m=m, seed=d)
    change = cell.change(cell.target)
    slope = jax.grad(cosh)(cell.y, cell.target)
    steepest = -U @ jnp.linalg.solve(G, U.T @ slope)
    assert_close(change / jnp.linalg.norm(change), steepest / jnp.linalg.norm(steepest))
    # Steepest indeed: of all directions of U with the length 1 under g, none descends faster.
    c = jnp.linalg.lstsq(U, change)[0]
    others = jax.random.normal(jax.random.key(20 + d), (200, d))
    descent = lambda c: (U @ c) @ slope / jnp.sqrt(c @ G @ c)  # noqa: E731
    assert descent(c) <= jnp.min(jax.vmap(descent)(others)) + 1e-12


def test_masks_are_bernoulli():
    """Eq. (bern): frequencies lie within five standard errors of sigmoid(zeta)."""
    draws = 20_000
    zeta = jnp.linspace(-3, 3, 7)
    M = masks.sample(jnp.tile(zeta, (draws, 1)), jax.random.key(0))
    assert set(np.unique(M)) == {0.0, 1.0}
    p = jax.nn.sigmoid(zeta)
    assert jnp.all(jnp.abs(M.mean(0) - p) < 5 * jnp.sqrt(p * (1 - p) / draws))


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.0])
def test_soft_masks_follow_the_gumbel_softmax(temperature):
    """Eq. (gs) with its two Gumbels, in distribution and term by term."""
    zeta, shape = 0.7, (4000,)
    g1, g2 = jax.random.gumbel(jax.random.key(1), (2, *shape))
    top = jnp.exp((zeta + g1) / temperature)
    literal = top / (top + jnp.exp(g2 / temperature))
    assert_close(masks.gumbel_softmax(jnp.full(shape, zeta), g1 - g2, temperature), literal)
    ours = masks.sample(
        jnp.full(shape, zeta), jax.random.key(2), relaxation="soft", temperature=temperature
    )
    assert ks_2samp(np.asarray(literal), np.asarray(ours)).pvalue > 1e-3


def test_at_temperature_zero_soft_masks_are_hard():
    zeta = jnp.zeros(1000)
    soft, cold, hard = (
        masks.sample(zeta, jax.random.key(0), relaxation=how, temperature=t)
        for how, t in (("soft", 1.0), ("soft", 1e-6), ("hard", 1.0))
    )
    np.testing.assert_allclose(cold, hard, atol=1e-6)
    assert not jnp.allclose(soft, hard, atol=0.1)


def test_straight_through_is_hard_in_value_and_soft_in_derivative():
    zeta, noise = jnp.linspace(-2, 2, 9), jax.random.logistic(jax.random.key(0), (9,))
    soft = lambda z: masks.gumbel_softmax(z, noise, 0.5)  # noqa: E731
    hard = lambda z: masks.straight_through(soft(z))  # noqa: E731
    assert_close(hard(zeta), (soft(zeta) > 0.5).astype(float))
    assert_close(jax.jacobian(hard)(zeta), jax.jacobian(soft)(zeta))


def test_settled_masks():
    zeta = jnp.array([-1.0, 0.5])
    assert_close(masks.deterministic_mask(zeta, "expected"), 1 / (1 + jnp.exp(-zeta)))
    assert_close(masks.deterministic_mask(zeta, "threshold"), jnp.array([0.0, 1.0]))
    assert_close(masks.fraction_updated(zeta), jnp.mean(1 / (1 + jnp.exp(-zeta))))


@pytest.mark.parametrize("how", ["expected", "threshold"])
def test_new_tasks_may_have_masks_without_chance(how):
    """at_test: the masks of `adapt` no longer depend on the key; those of `loss` still do."""
    learner = mtnet.mt_net(small_net(), alpha=ALPHA, at_test=how)
    theta = shaken(learner.init(jax.random.key(0)))
    episode, keys = small_episode(), jax.random.split(jax.random.key(1), 6)
    adapt = eqx.filter_jit(learner.adapt)
    first, *others = (adapt(theta, episode.support, k) for k in keys)
    assert not any(differ(first, other, by=0) for other in others)
    assert differ(*jax.jit(jax.vmap(learner.loss, (None, None, 0)))(theta, episode, keys)[:2])


def test_rows_of_a_mask_stand_or_fall_together():
    """m-net moves whole rows, biases with them; m-net-full moves single weights."""
    net = eqx.nn.Sequential([eqx.nn.Linear(6, 8, key=jax.random.key(0))])
    support = small_batch(inputs=(6,), outputs=(8,))

    def moved(method):
        learner = method(net)
        theta = learner.init(jax.random.key(0))
        adapted = learner.adapt(theta, support, jax.random.key(1))
        new, old = adapted.layers[0], net.layers[0]
        return jnp.column_stack([new.weight != old.weight, new.bias != old.bias])

    rows = moved(mtnet.m_net).mean(1)
    assert set(np.unique(rows)) == {0.0, 1.0}
    singles = moved(mtnet.m_net_full).mean(1)
    assert jnp.any((singles > 0) & (singles < 1))


def meta_trained(**options):
    family = mtnet.sine(4, 4)
    net = eqx.nn.MLP(1, 1, 5, 1, activation=jnp.tanh, key=jax.random.key(0))
    learner = mtnet.mt_net(net, **options)
    return mtnet.meta_train(
        learner,
        family,
        iterations=5,
        meta_batch=3,
        optimiser=optax.adam(1e-2),
        key=jax.random.key(1),
    ).theta


@pytest.mark.usefixtures("unchecked")  # alpha is traced, to compile once for all
@pytest.mark.parametrize("invariant", [0.05, None])
def test_the_invariant_option_makes_meta_training_independent_of_alpha(invariant):
    by_alpha = jax.jit(lambda alpha: meta_trained(alpha=alpha, invariant=invariant))
    first, *others = (by_alpha(alpha) for alpha in (0.01, 1e-4, 1.0, 10.0))
    for other in others:
        if invariant is None:
            assert differ(other, first, by=1e-4)
        else:
            assert_close(other, first, rtol=1e-8, atol=1e-10)


def test_a_scale_in_t_is_a_step_size():
    """T = c S, W = V / c with alpha learns as S, V with alpha c^2; `invariant` sets that c."""
    c, net, support = 3.0, small_net(), small_batch()
    plain = mtnet.mt_net(net, alpha=ALPHA * c**2, steps=2)
    theta = shaken(plain.init(jax.random.key(0)))
    scaled = theta._replace(
        T=jax.tree.map(lambda S: c * S, theta.T), W=jax.tree.map(lambda V: V / c, theta.W)
    )
    learners = [
        (plain, theta),
        (mtnet.mt_net(net, alpha=ALPHA, steps=2), scaled),
        (mtnet.mt_net(net, alpha=0.01, steps=2, invariant=ALPHA * c**2), theta),
    ]
    first, *others = (
        eqx.filter_jit(learner.adapt)(theta, support, jax.random.key(1))
        for learner, theta in learners
    )
    for other in others:
        assert_close(other, first)
