"""The form of a convolution for accelerators, forced on a CPU: the same numbers, other programs."""

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from helpers import assert_close, small_episode

from mtnet import Conv2d, maml, predict
from mtnet.nets import convolve
from mtnet.nets.conv4 import conv4
from mtnet.nets.pooled import can_pool

KEY = jax.random.key(0)


@pytest.fixture
def accelerator(monkeypatch):
    def use():
        monkeypatch.setattr(convolve, "on_accelerator", lambda: True)
        jax.clear_caches()

    return use


class Positions(eqx.Module):
    """The mean of a convolution over positions."""

    conv: Conv2d

    def __call__(self, x):
        return jnp.mean(self.conv(x), (1, 2))


def meta_gradient():
    """Loss and gradient over three tasks side by side, each with weights of its own."""
    net = Positions(Conv2d(2, 4, 3, stride=2, padding="SAME", key=KEY))
    learner = maml(net, alpha=0.1, steps=1)
    shape = {"examples": 2, "inputs": (2, 7, 6), "outputs": (4,)}
    tasks = jax.tree.map(lambda *a: jnp.stack(a), *(small_episode(n, **shape) for n in range(3)))

    def loss(theta):
        each = jax.vmap(learner.loss, (None, 0, None))
        return jnp.mean(each(theta, tasks, KEY))

    return jax.jit(jax.value_and_grad(loss)), learner.init(KEY)


def test_both_forms_of_the_convolution_agree(accelerator):
    program, theta = meta_gradient()
    on_cpu = program(theta)
    assert "feature_group_count = 3" not in program.lower(theta).as_text()
    accelerator()
    program, _ = meta_gradient()
    assert_close(program(theta), on_cpu)
    assert "feature_group_count = 3" in program.lower(theta).as_text()  # one group per task


def test_both_forms_of_a_network_for_photographs_agree(accelerator):
    net, x = conv4((3, 16, 16), 2, filters=2, pool=True), jax.random.normal(KEY, (2, 3, 16, 16))
    first = first_conv(net)
    assert can_pool(first, (16, 16, 3))
    on_cpu = predict(net, x)
    accelerator()
    assert not can_pool(first, (16, 16, 3))
    assert_close(predict(net, x), on_cpu)


def first_conv(net):
    """The first convolution of a network."""
    is_conv = lambda node: isinstance(node, Conv2d)  # noqa: E731
    return next(node for node in jax.tree.leaves(net, is_leaf=is_conv) if is_conv(node))
