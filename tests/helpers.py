"""What several test modules share: small networks, small tasks, and ways to compare."""

from concurrent.futures import Executor, Future

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from mtnet import Batch, Episode

CERTAIN = 1e3
"""A mask logit of this size, either sign, leaves nothing to chance."""


class Here(Executor):
    """Does the work at once, in this thread: precision is a thread's own."""

    def submit(self, function, *arguments):
        future = Future()
        future.set_result(function(*arguments))
        return future


class Scaled(eqx.Module):
    """An MLP and an array that belongs to no cell."""

    mlp: eqx.nn.MLP
    scale: jax.Array

    def __call__(self, x):
        return self.scale * self.mlp(x)


def small_net(**options):
    """Smooth, so that differences can stand for derivatives."""
    mlp = eqx.nn.MLP(2, 2, 5, 1, activation=jnp.tanh, key=jax.random.key(1), **options)
    return Scaled(mlp, jnp.array([0.7, 1.3]))


def small_batch(seed=2, examples=4, inputs=(2,), outputs=(2,)):
    """Four examples: fewer than the last layer has inputs, more than the first one has."""
    x, y = jax.random.split(jax.random.key(seed))
    return Batch(
        jax.random.normal(x, (examples, *inputs)), jax.random.normal(y, (examples, *outputs))
    )


def small_episode(seed=2, **shape):
    return Episode(small_batch(seed, **shape), small_batch(seed + 1, **shape))


def shaken(theta, seed=4, size=0.2):
    """Meta-parameters in general position: no T is the identity, no logit is zero."""
    flat, unravel = ravel_pytree(theta)
    return unravel(flat + size * jax.random.normal(jax.random.key(seed), flat.shape))


def certain(zeta, seed=5):
    """Logits whose masks are sure, and those masks: about half of the entries are 1."""
    flat, unravel = ravel_pytree(zeta)
    m = jax.random.bernoulli(jax.random.key(seed), 0.5, flat.shape).astype(flat.dtype)
    return unravel(CERTAIN * (2 * m - 1)), unravel(m)


def arrays(tree):
    return eqx.filter(tree, eqx.is_array)


def assert_close(a, b, *, rtol=1e-9, atol=1e-11):
    """Two PyTrees of one structure, equal to rounding."""
    a, b = arrays(a), arrays(b)
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for one, other in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)


def differ(a, b, by=1e-6):
    """Whether two PyTrees of one structure are apart by more than rounding."""
    a, b = ravel_pytree(arrays(a))[0], ravel_pytree(arrays(b))[0]
    return float(jnp.max(jnp.abs(a - b), initial=0.0)) > by
