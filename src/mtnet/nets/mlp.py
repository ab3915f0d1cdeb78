"""The regressor of section 6.1: two hidden cells of 40, ReLU after every T but the last."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def mlp(inputs: int = 1, outputs: int = 1, width: int = 40, depth: int = 2) -> eqx.nn.MLP:
    """The fully connected network of section 6.1; use `initialise=truncated_normal()` to draw it.

    Args:
        inputs: Numbers per example.
        outputs: Numbers per prediction.
        width: Units per hidden layer.
        depth: Number of hidden layers.

    Returns:
        An Equinox MLP.
    """
    return eqx.nn.MLP(inputs, outputs, width, depth, key=jax.random.key(0))


def features(inputs: int = 1, width: int = 40, depth: int = 2) -> eqx.nn.MLP:
    """The same without its head: its features are the last hidden activations."""
    return eqx.nn.MLP(
        inputs, width, width, depth - 1, final_activation=jax.nn.relu, key=jax.random.key(0)
    )


class Skip(eqx.Module):
    """A network plus its last input, a prediction that it corrects."""

    mlp: eqx.nn.MLP

    def __call__(self, x: Float[Array, " inputs"]) -> Array:
        return x[-1:] + self.mlp(x)


class Beside(eqx.Module):
    """Learned features and the inputs: new classes may differ in what training could ignore."""

    mlp: eqx.nn.MLP

    def __call__(self, x: Float[Array, " inputs"]) -> Array:
        return jnp.concatenate([x, self.mlp(x)])
