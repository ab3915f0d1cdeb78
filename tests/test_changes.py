"""What a task has changed, and what its cells let through."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import certain, shaken, small_batch

import mtnet
from mtnet.core import rules
from mtnet.core.cells import fold
from mtnet.core.deltas import apply_delta, cell_summaries, task_delta

KEY = jax.random.key(0)
NET = eqx.nn.MLP(2, 2, 6, 1, activation=jnp.tanh, key=jax.random.key(1))


def adapted(make, **options):
    """Cells before and after a task, with masks that are sure."""
    learner = make(NET, alpha=0.3, steps=3, **options)
    theta = shaken(learner.init(KEY))
    zeta, M = certain(theta.zeta) if theta.zeta else ({}, {})
    theta = theta._replace(zeta=zeta)
    after = mtnet.split(learner.adapt(theta, small_batch(), KEY)).W
    return theta, M, fold(theta.T, theta.W), after


@pytest.mark.parametrize("make", [mtnet.maml, mtnet.m_net, mtnet.t_net, mtnet.mt_net])
def test_rows_with_mask_one_tell_the_whole_task(make):
    """Any number of steps moves those rows of W and no others, so A' = A + T[:, rows] D."""
    theta, M, before, after = adapted(make)
    for cell, A in before.items():
        T = theta.T.get(cell)
        change = task_delta(T, M.get(cell), A, after[cell])
        expected = np.flatnonzero(M[cell]) if cell in M else np.arange(len(A[0]))
        assert change.rows.tolist() == expected.tolist()
        for found, wanted in zip(apply_delta(T, A, change), after[cell], strict=True):
            np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_blocks_and_full_masks_are_told_by_the_change_itself():
    for make, options in ((mtnet.t_net, {"blocks": {"layers.0": 3}}), (mtnet.mt_net_full, {})):
        theta, M, before, after = adapted(make, **options)
        for cell, A in before.items():
            T = theta.T[cell]
            found = apply_delta(T, A, task_delta(T, M.get(cell), A, after[cell]))
            np.testing.assert_allclose(found[0], after[cell][0], atol=1e-6)


def test_facts_are_those_of_the_metric():
    """Spectrum and rank of T M T'; the step is alpha times its mean; moved is |A' - A| / |A|."""
    theta, M, before, after = adapted(mtnet.mt_net)
    for cell, facts in cell_summaries(theta.T, M, 0.3, before, after).items():
        values = jnp.linalg.eigvalsh(rules.metric(theta.T[cell], M[cell]))
        np.testing.assert_allclose(facts.spectrum, np.maximum(values[::-1], 0), atol=1e-9)
        assert facts.rank == facts.updated == M[cell].sum()
        assert facts.step == pytest.approx(0.3 * float(values.mean()))
        moved = jnp.sqrt(
            sum(jnp.sum((b - a) ** 2) for a, b in zip(before[cell], after[cell], strict=False))
        )
        size = jnp.sqrt(sum(jnp.sum(a**2) for a in before[cell]))
        assert facts.moved == pytest.approx(float(moved / size))


def test_many_tasks_in_one_call_are_the_tasks_one_by_one():
    learner = mtnet.mt_net(NET, alpha=0.3, at_test="expected")
    theta = shaken(learner.init(KEY))
    batches = [small_batch(seed) for seed in range(3)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *batches)
    many = mtnet.adapt_many(learner, theta, stacked, KEY)
    for i, batch in enumerate(batches):
        one = mtnet.adapt(learner, theta, batch, KEY)
        np.testing.assert_allclose(many.layers[0].weight[i], one.layers[0].weight, rtol=1e-9)
