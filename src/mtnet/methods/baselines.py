"""The two baselines of Ravi & Larochelle (2017): one network for all classes, then no more of it.

A network learns to tell all training classes apart, or to answer all training tasks at once. On a
new task its features stay as they are: `fine-tune` learns a new head by gradient descent,
`nearest-neighbour` answers as the support example with the largest cosine does.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, Scalar

from mtnet.core.inner import StatisticsMode
from mtnet.core.losses import cross_entropy, predict
from mtnet.core.norms import freeze_batch_stats
from mtnet.core.types import Batch, Episode, Learner, Loss
from mtnet.methods.metric_based import Initialise, one_hot, redraw, unit


class PretrainedParams(NamedTuple):
    """theta of both: the arrays of the network, and a head for all classes (or the outputs)."""

    net: Any
    W: Float[Array, "outputs features"]
    b: Float[Array, " outputs"]


class Headed(eqx.Module):
    """Features and a linear head."""

    net: Any
    W: Float[Array, "outputs features"]
    b: Float[Array, " outputs"]

    def __call__(self, x: Array) -> Float[Array, " outputs"]:
        return self.W @ self.net(x) + self.b


class Neighbours(eqx.Module):
    """Answers as the nearest support example; with classes, a class's best cosine is its logit."""

    net: Any
    features: Float[Array, "n features"]
    y: Array
    ways: int | None = eqx.field(static=True)

    def __call__(self, x: Array) -> Array:
        cosines = unit(self.features) @ unit(self.net(x))
        if self.ways is None:
            return self.y[jnp.argmax(cosines)]
        member = one_hot(self.y, self.ways) > 0
        return jnp.max(jnp.where(member, cosines[:, None], -2.0), axis=0)


Adapt = Callable[[PretrainedParams, Any, Batch, int], Any]


def fine_tune(
    net: Any,
    *,
    features: int,
    outputs: int,
    ways: int | None = None,
    loss: Loss = cross_entropy,
    alpha: float = 0.01,
    step_size: float | Array | None = None,
    steps: int = 1,
    initialise: Initialise | None = None,
    statistics: StatisticsMode = "transductive",
) -> Learner:
    """A new head, by `steps` of gradient descent with step `alpha`.

    **Arguments:**
    - `net`, `features`: maps an example to so many features.
    - `outputs`: training classes, or outputs of a regression.
    - `ways`: classes of a task, whose head starts at zero; None: a regression, whose head
      starts as trained.
    """
    rate = alpha if step_size is None else step_size

    def heads(theta: PretrainedParams, made: Any, support: Batch, steps: int) -> Any:
        f = predict(made, support.x)
        first = theta.W, theta.b
        if ways is not None:
            first = jnp.zeros((ways, features)), jnp.zeros(ways)

        def objective(head: tuple[Array, Array]) -> Scalar:
            return loss(f @ head[0].T + head[1], support.y)

        def step(head: Any, _: Any) -> tuple[Any, Any]:
            head = jax.tree.map(lambda w, g: w - rate * g, head, jax.grad(objective)(head))
            return head, head

        _, later = jax.lax.scan(step, first, length=steps)
        return jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), first, later)

    def trajectory(theta: PretrainedParams, made: Any, support: Batch, steps: int) -> Headed:
        W, b = heads(theta, made, support, steps)
        return eqx.filter_vmap(lambda W, b: Headed(made, W, b))(W, b)

    return _pretrained(net, features, outputs, trajectory, steps, loss, initialise, statistics)


def nearest_neighbour(
    net: Any,
    *,
    features: int,
    outputs: int,
    ways: int | None = None,
    loss: Loss = cross_entropy,
    initialise: Initialise | None = None,
    statistics: StatisticsMode = "transductive",
) -> Learner:
    """No step at all: the nearest support example's label, or value."""

    def trajectory(theta: PretrainedParams, made: Any, support: Batch, steps: int) -> Neighbours:
        model = Neighbours(made, predict(made, support.x), support.y, ways)
        return jax.tree.map(lambda a: a[None] if eqx.is_array(a) else a, model)

    return _pretrained(net, features, outputs, trajectory, 0, loss, initialise, statistics)


def _pretrained(
    net: Any,
    features: int,
    outputs: int,
    trajectory: Adapt,
    steps: int,
    loss: Loss,
    initialise: Initialise | None,
    statistics: StatisticsMode,
) -> Learner:
    static = eqx.filter(net, eqx.is_inexact_array, inverse=True)

    def init(key: Key[Array, ""]) -> PretrainedParams:
        to_net, to_head = jax.random.split(key)
        begun = net if initialise is None else redraw(net, initialise, to_net)
        spread = (features + outputs) ** -0.5
        W = spread * jax.random.normal(to_head, (outputs, features))
        return PretrainedParams(eqx.filter(begun, eqx.is_inexact_array), W, jnp.zeros(outputs))

    def along(theta: PretrainedParams, support: Batch, key: Key[Array, ""], steps: int) -> Any:
        made = eqx.combine(theta.net, static)
        made = freeze_batch_stats(made, support.x) if statistics == "inductive" else made
        return trajectory(theta, made, support, steps)

    def adapt(theta: PretrainedParams, support: Batch, key: Key[Array, ""]) -> Any:
        models = along(theta, support, key, steps)
        return jax.tree.map(lambda a: a[-1] if eqx.is_array(a) else a, models)

    def joint_loss(theta: PretrainedParams, episode: Episode, key: Key[Array, ""]) -> Scalar:
        """All classes, or tasks, at once: nothing is adapted while training."""
        model = Headed(eqx.combine(theta.net, static), theta.W, theta.b)
        return loss(predict(model, episode.query.x), episode.query.y)

    return Learner(init, adapt, joint_loss, along)
