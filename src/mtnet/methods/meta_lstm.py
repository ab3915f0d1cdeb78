"""Meta-learner LSTM (Ravi & Larochelle 2017): the task's weights are the cell state of an LSTM.

    c_t = f_t * c_{t-1} - i_t * dL/dc_{t-1}

is gradient descent where the forget gate f is 1 and the input gate i the step size. Both gates
are learned functions of gradient, loss, weight and their own last value, the same for
every weight; the first state c_0 is learned too. Gradients and losses go in as constants, which
makes training first-order, as published.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Key, Scalar

from mtnet.core.initialise import Initialise
from mtnet.core.inputs import check_support
from mtnet.core.losses import mse, predict
from mtnet.core.norms import freeze_batch_stats
from mtnet.core.options import StatisticsMode
from mtnet.core.types import Batch, Episode, Learner, Loss
from mtnet.errors import check_options
from mtnet.methods.metric_based import initial_arrays

HIDDEN, P = 20, 10.0


class Gate(NamedTuple):
    """sigmoid(h W_h + c W_c + last W_last + b), for every weight."""

    h: Float[Array, " hidden"]
    c: Float[Array, ""]
    last: Float[Array, ""]
    b: Float[Array, ""]

    def __call__(self, h: Array, c: Array, last: Array) -> Array:
        return jax.nn.sigmoid(h @ self.h + c * self.c + last * self.last + self.b)


class LSTMParams(NamedTuple):
    """theta: the initial weights, and the parameters of their update."""

    c: Float[Array, " weights"]
    lstm: eqx.nn.LSTMCell
    i: Gate
    f: Gate


class LSTMState(NamedTuple):
    """State between steps: weights, both gates, and the LSTM's (h, c)."""

    c: Float[Array, " weights"]
    i: Float[Array, " weights"]
    f: Float[Array, " weights"]
    memory: tuple[Float[Array, "weights hidden"], Float[Array, "weights hidden"]]


@check_options
def meta_lstm(
    net: Any,
    *,
    loss: Loss = mse,
    steps: int = 5,
    initialise: Initialise | None = None,
    statistics: StatisticsMode = "transductive",
) -> Learner:
    """Meta-learner LSTM: every weight moves by a learned, gated update.

    Args:
        net: The network, for one example; any Equinox module.
        loss: `(predictions, targets) -> scalar`, for support and query.
        steps: Updates per task.
        initialise: Draws new weights in `init`. Default: the weights of `net`.
        statistics: Norms use statistics of the queries ("transductive") or of the support set
            only ("inductive").

    Returns:
        The learner.
    """

    def unravel(c: Float[Array, " weights"]) -> Any:
        arrays, static = eqx.partition(net, eqx.is_inexact_array)
        return eqx.combine(ravel_pytree(arrays)[1](c), static)

    def init(key: Key[Array, ""]) -> LSTMParams:
        to_net, to_lstm, to_i, to_f = jax.random.split(key, 4)
        c = ravel_pytree(initial_arrays(net, initialise, to_net))[0]
        # step sizes start around sigmoid(-4.5) = 0.01, and forget gates near 1
        gates = gate(to_i, -5.0, -4.0), gate(to_f, 4.0, 6.0)
        return LSTMParams(c, eqx.nn.LSTMCell(4, HIDDEN, key=to_lstm), *gates)

    def on(batch: Batch, model: Any) -> Scalar:
        return loss(predict(model, batch.x), batch.y)

    def along(theta: LSTMParams, support: Batch, steps: int) -> Float[Array, "points weights"]:
        check_support(support, unravel(theta.c))
        return weights_by_step(theta, lambda c: on(support, unravel(c)), steps)

    def finished(c: Array, support: Batch) -> Any:
        model = unravel(c)
        return freeze_batch_stats(model, support.x) if statistics == "inductive" else model

    def adapt(theta: LSTMParams, support: Batch, key: Key[Array, ""]) -> Any:
        return finished(along(theta, support, steps)[-1], support)

    def query_loss(theta: LSTMParams, episode: Episode, key: Key[Array, ""]) -> Scalar:
        return on(episode.query, adapt(theta, episode.support, key))

    def trajectory(theta: LSTMParams, support: Batch, key: Key[Array, ""], steps: int) -> Any:
        return eqx.filter_vmap(lambda c: finished(c, support))(along(theta, support, steps))

    return Learner(init, adapt, query_loss, trajectory)


def weights_by_step(
    theta: LSTMParams, support_loss: Callable[[Array], Scalar], steps: int
) -> Float[Array, "points weights"]:
    """The weights before the first step, and after each."""

    def step(state: LSTMState, _: None) -> tuple[LSTMState, Array]:
        value, g = jax.value_and_grad(support_loss)(state.c)
        state = move(theta, state, *jax.lax.stop_gradient((value, g)))
        return state, state.c

    _, later = jax.lax.scan(step, first(theta), length=steps)
    return jnp.concatenate([theta.c[None], later])


def first(theta: LSTMParams) -> LSTMState:
    """The state before the first step."""
    empty = jnp.zeros((len(theta.c), HIDDEN), theta.c.dtype)
    return LSTMState(theta.c, jnp.zeros_like(theta.c), jnp.ones_like(theta.c), (empty, empty))


def move(
    theta: LSTMParams, state: LSTMState, value: Scalar, g: Float[Array, " weights"]
) -> LSTMState:
    """One step: LSTM of loss and gradient, then the gates, then the weights."""
    loss_seen = jnp.broadcast_to(preprocess(value), (len(g), 2))
    memory = jax.vmap(theta.lstm)(jnp.concatenate([preprocess(g), loss_seen], axis=1), state.memory)
    i = theta.i(memory[0], state.c, state.i)
    f = theta.f(memory[0], state.c, state.f)
    return LSTMState(f * state.c - i * g, i, f, memory)


def gate(key: Key[Array, ""], low: float, high: float) -> Gate:
    """Initial parameters of a gate; its bias is uniform in [low, high]."""
    to_h, to_c, to_last, to_b = jax.random.split(key, 4)
    small = lambda key, *shape: jax.random.uniform(key, shape, minval=-0.01, maxval=0.01)  # noqa: E731
    b = jax.random.uniform(to_b, (), minval=low, maxval=high)
    return Gate(small(to_h, HIDDEN), small(to_c), small(to_last), b)


def preprocess(x: Float[Array, "..."]) -> Float[Array, "... 2"]:
    """(log|x| / p, sign x) where |x| >= e^-p, else (-1, e^p x): size and sign apart, p = 10."""
    size = jnp.abs(x)
    large = size >= jnp.exp(-P)
    log = jnp.log(jnp.where(large, size, 1.0)) / P
    return jnp.stack(
        [jnp.where(large, log, -1.0), jnp.where(large, jnp.sign(x), jnp.exp(P) * x)], axis=-1
    )
