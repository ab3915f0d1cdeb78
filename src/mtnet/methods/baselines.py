"""The two baselines of Ravi & Larochelle (2017): one network, trained on all classes at once.

On a new task `fine-tune` gives it a new head and trains the whole by gradient descent;
`nearest-neighbour` predicts the target of the support example with the largest cosine.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, Scalar

from mtnet.core.initialise import Initialise
from mtnet.core.inputs import check_support
from mtnet.core.losses import cross_entropy, predict
from mtnet.core.norms import join_support
from mtnet.core.options import StatisticsMode
from mtnet.core.types import Batch, Episode, Learner, Loss
from mtnet.errors import check_options
from mtnet.methods.metric_based import initial_arrays, metric_predictor, stack_one, unit


class PretrainedParams(NamedTuple):
    """theta of both: arrays of the network, and a head with one row per class (or output)."""

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


Adapt = Callable[[PretrainedParams, Any, Batch, int], Any]


@check_options
def fine_tune(
    net: Any,
    *,
    features: int,
    outputs: int,
    ways: int | None = None,
    loss: Loss = cross_entropy,
    alpha: float = 0.01,
    step_size: float | Array | None = None,
    decay: float = 1.0,
    steps: int = 1,
    head_only: bool = False,
    initialise: Initialise | None = None,
    statistics: StatisticsMode = "transductive",
) -> Learner:
    """Pretraining, then a new head, and gradient descent on the whole network.

    Step t = 0, 1, ... has size alpha decay^t; norms see the support set as their batch.

    Args:
        net: Maps one example to its features.
        features: Number of features of `net`.
        outputs: Training classes, or outputs of a regression.
        ways: Classes per task; the new head starts at zero. None: a regression, whose head starts
            as trained.
        loss: `(predictions, targets) -> scalar`.
        alpha: Step size.
        step_size: Replaces `alpha`; may be traced.
        decay: Factor of the step size from step to step.
        steps: Gradient steps per task.
        head_only: Train the new head only, on fixed features.
        initialise: Draws new weights in `init`. Default: the weights of `net`.
        statistics: Norms use statistics of support and queries together ("transductive") or of
            the support set only ("inductive").

    Returns:
        The learner.
    """
    rate = alpha if step_size is None else step_size

    def trajectory(theta: PretrainedParams, embed: Any, support: Batch, steps: int) -> Headed:
        first = theta
        if ways is not None:
            first = theta._replace(W=jnp.zeros((ways, features)), b=jnp.zeros(ways))
        moves = jax.tree.map(lambda _: True, first)._replace(net=not head_only)
        moving, fixed = eqx.partition(first, moves)

        def headed(moving: PretrainedParams, wrap: Callable[[Any], Any]) -> Headed:
            arrays, W, b = eqx.combine(moving, fixed)
            return Headed(wrap(eqx.combine(arrays, embed)), W, b)

        def objective(moving: PretrainedParams) -> Scalar:
            return loss(predict(headed(moving, lambda net: net), support.x), support.y)

        path = _descend(objective, moving, rate * decay ** jnp.arange(steps))
        joint = partial(join_support, x=support.x, inductive=statistics == "inductive")
        return eqx.filter_vmap(lambda moving: headed(moving, joint))(path)

    return _pretrained(net, features, outputs, trajectory, steps, loss, initialise)


def _descend(objective: Callable[[Any], Scalar], start: Any, sizes: Float[Array, " steps"]) -> Any:
    """The arrays after 0, 1, ... gradient steps of these sizes, stacked."""

    def step(arrays: Any, size: Array) -> tuple[Any, Any]:
        slope = jax.grad(objective)(arrays)
        arrays = jax.tree.map(lambda w, g: (w - size * g).astype(w.dtype), arrays, slope)
        return arrays, arrays

    _, later = jax.lax.scan(step, start, sizes)
    return jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), start, later)


@check_options
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
    """Pretraining, then the target of the nearest support example by cosine.

    Args:
        net: Maps one example to its features.
        features: Number of features of `net`.
        outputs: Training classes, or outputs of a regression.
        ways: Classes per task. None: a regression.
        loss: `(predictions, targets) -> scalar`, for pretraining.
        initialise: Draws new weights in `init`. Default: the weights of `net`.
        statistics: Norms use statistics of support and queries together ("transductive") or of
            the support set only ("inductive").

    Returns:
        The learner.
    """

    def remember(_: Any, f: Float[Array, "n features"], y: Array) -> tuple[Array, Array]:
        return f, y

    score, inductive = partial(nearest, ways=ways), statistics == "inductive"

    def trajectory(theta: PretrainedParams, embed: Any, support: Batch, steps: int) -> Any:
        return stack_one(metric_predictor(embed, (), support, remember, score, inductive=inductive))

    return _pretrained(net, features, outputs, trajectory, 0, loss, initialise)


def nearest(
    f: Float[Array, " features"], memory: tuple[Float[Array, "n features"], Array], ways: int | None
) -> Array:
    """The target of the nearest support example; a class's logit is its largest cosine."""
    features, y = memory
    cosines = unit(features) @ unit(f)
    if ways is None:
        return y[jnp.argmax(cosines)]
    member = jax.nn.one_hot(y, ways) > 0
    return jnp.max(jnp.where(member, cosines[:, None], -2.0), axis=0)


def _pretrained(
    net: Any,
    features: int,
    outputs: int,
    trajectory: Adapt,
    steps: int,
    loss: Loss,
    initialise: Initialise | None,
) -> Learner:
    static = eqx.filter(net, eqx.is_inexact_array, inverse=True)

    def init(key: Key[Array, ""]) -> PretrainedParams:
        to_net, to_head = jax.random.split(key)
        W = jax.nn.initializers.normal((features + outputs) ** -0.5)(to_head, (outputs, features))
        return PretrainedParams(initial_arrays(net, initialise, to_net), W, jnp.zeros(outputs))

    def along(theta: PretrainedParams, support: Batch, key: Key[Array, ""], steps: int) -> Any:
        embed = eqx.combine(theta.net, static)
        check_support(support, embed)
        return trajectory(theta, embed, support, steps)

    def adapt(theta: PretrainedParams, support: Batch, key: Key[Array, ""]) -> Any:
        models = along(theta, support, key, steps)
        return jax.tree.map(lambda a: a[-1] if eqx.is_array(a) else a, models)

    def joint_loss(theta: PretrainedParams, episode: Episode, key: Key[Array, ""]) -> Scalar:
        """The loss on all classes, or tasks, at once, without adaptation."""
        model = Headed(eqx.combine(theta.net, static), theta.W, theta.b)
        return loss(predict(model, episode.query.x), episode.query.y)

    return Learner(init, adapt, joint_loss, along)
