"""Data that does not fit: one line that names the thing and the remedy."""

import jax
import jax.numpy as jnp
import pytest
from helpers import small_net

import mtnet
from mtnet import Batch, InputError


@pytest.mark.parametrize(
    ("x", "y", "says"),
    [
        (jnp.zeros((4, 3)), jnp.zeros((4, 2)), r"inputs of shape \(3,\)"),
        (jnp.zeros((4, 2)), jnp.zeros((4, 1)), r"targets have shape \(4, 1\)"),
        (jnp.zeros((4, 2)), jnp.zeros((3, 2)), "4 inputs and 3 targets"),
        (jnp.zeros((0, 2)), jnp.zeros((0, 2)), "empty"),
        (jnp.zeros((4, 2), int), jnp.zeros((4, 2)), r"astype\(float\)"),
    ],
    ids=["inputs", "targets", "counts", "empty", "integers"],
)
def test_a_support_set_that_does_not_fit(x, y, says):
    learner = mtnet.mt_net(small_net())
    theta = learner.init(jax.random.key(0))
    with pytest.raises(InputError, match=says) as caught:
        learner.adapt(theta, Batch(x, y), jax.random.key(1))
    assert "\n" not in str(caught.value)


def test_an_option_that_is_none():
    with pytest.raises(TypeError, match="step_siz"):
        mtnet.mt_net(small_net(), step_siz=0.1)
