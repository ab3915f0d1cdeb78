"""The body of a meta-trained network: its layers without the head, as plain weights."""

from typing import Any, NamedTuple

from jaxtyping import Array

from mtnet.core.cells import Cells, Weights, fold, split
from mtnet.core.types import MetaParams
from mtnet.errors import InputError


class Body(NamedTuple):
    """Weights by the name of the layer, and other arrays (offsets of norms) by their own."""

    W: Cells[Weights]
    rest: dict[str, Array]


def take_body(theta: MetaParams, head: str) -> Body:
    """The body of a network with these meta-parameters.

    Args:
        theta: Meta-parameters of a gradient method (T is folded into W), or of a method that
            compares features or pretrains.
        head: The name of the head, which is not part of the body.

    Returns:
        The body.
    """
    W, rest = _parts(theta)
    W = fold(theta.T, W) if getattr(theta, "T", None) else W
    return Body({cell: w for cell, w in W.items() if cell != head}, rest)


def scale_body(body: Body, factor: float) -> Body:
    """The body with its weights multiplied.

    A norm after each layer cancels the factor (epsilon apart), so that the outputs stay. The
    gradient becomes `factor` times smaller and the weights larger: one step size can serve a head
    that must move far and a body that must not.
    """
    return body._replace(W={cell: tuple(factor * w for w in W) for cell, W in body.W.items()})


def put_body(theta: MetaParams, body: Body) -> MetaParams:
    """theta with the weights of a body; T, zeta, alpha and the head stay as they are."""
    W, rest = _parts(theta)
    if not set(body.W) <= set(W) or not set(body.rest) <= set(rest):
        raise InputError(f"this network has no layers {', '.join(sorted(set(body.W) - set(W)))}")
    W, rest = W | body.W, rest | body.rest
    if hasattr(theta, "net"):
        return theta._replace(net=split(theta.net).join(W, rest))
    return theta._replace(W=W, rest=rest)


def _parts(theta: MetaParams) -> tuple[Cells[Weights], dict[str, Array]]:
    if hasattr(theta, "net"):
        parts: Any = split(theta.net)
        return parts.W, parts.rest
    if hasattr(theta, "W") and hasattr(theta, "rest"):
        return theta.W, theta.rest
    raise InputError("init_from does not work with this method: its weights are one vector")
