"""Checks of what a learner is given, before anything is compiled."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from mtnet.core.losses import predict
from mtnet.core.types import Batch
from mtnet.errors import InputError


def check_support(support: Batch, net: Any) -> None:
    """Raise an InputError if a support set is empty or does not fit the network."""
    if support.x.shape[0] == 0:
        raise InputError("the support set is empty: give at least one example")
    if len(support.x) != len(support.y):
        raise InputError(
            f"the support set has {len(support.x)} inputs and {len(support.y)} targets: "
            "give as many of one as of the other"
        )
    if not jnp.issubdtype(support.x.dtype, jnp.inexact):
        raise InputError(
            f"inputs are {support.x.dtype}, which has no gradient: use x.astype(float)"
        )
    try:
        jax.eval_shape(lambda x: predict(net, x), support.x)
    except (TypeError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise InputError(
            f"the network does not take inputs of shape {support.x.shape[1:]}: {reason}"
        ) from None
    except Exception as error:
        if type(error).__name__ != "TraceContextError":  # Flax is not imported here
            raise
        raise InputError(
            "the network changes its own state when it is called (nnx.BatchNorm does): use "
            "nnx.GroupNorm or nnx.LayerNorm, or call net.eval() and freeze the statistics, "
            "freeze=['*.mean*', '*.var*']"
        ) from None


def uses_dropout(net: Any) -> bool:
    """Whether the network has dropout that is active: p > 0 and not in inference mode."""
    is_dropout = lambda node: isinstance(node, eqx.nn.Dropout)  # noqa: E731
    nodes = jax.tree.leaves(net, is_leaf=is_dropout)
    return any(is_dropout(node) and node.p > 0 and not node.inference for node in nodes)
