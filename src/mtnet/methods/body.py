"""The body of a meta-trained network: its layers without the head."""

from typing import Any, NamedTuple

from jaxtyping import Array

from mtnet.core.cells import Cells, Weights, fold, split
from mtnet.core.types import MetaParams
from mtnet.errors import InputError

LEARNED = ("T", "zeta", "alpha")
"""What a gradient method learns besides the weights, per layer."""


class Body(NamedTuple):
    """Weights by the name of the layer, other arrays (offsets of norms) by their own name, and
    what else the method has learned about each layer."""

    W: Cells[Weights]
    rest: dict[str, Array]
    learned: dict[str, Cells[Any]]
    """T, zeta and alpha by the name of the layer, for a network of the same method."""


def take_body(theta: MetaParams, head: str, *, same_method: bool = False) -> Body:
    """The body of a network with these meta-parameters.

    Args:
        theta: Meta-parameters of a gradient method, or of a method that compares features or
            pretrains.
        head: The name of the head, which is not part of the body.
        same_method: Keep T, masks and step sizes, for a network of the same method. Default: T is
            folded into W, so that the body fits every method.

    Returns:
        The body.
    """
    W, rest = _parts(theta)
    learned = {name: getattr(theta, name, {}) for name in LEARNED}
    if not same_method:
        W, learned = (fold(learned["T"], W) if learned["T"] else W), {}
    without = lambda cells: {cell: w for cell, w in cells.items() if cell != head}  # noqa: E731
    return Body(without(W), rest, {name: without(cells) for name, cells in learned.items()})


def scale_body(body: Body, factor: float) -> Body:
    """The body with its weights multiplied.

    A norm after each layer cancels the factor (epsilon apart), so that the outputs stay. The
    gradient becomes `factor` times smaller and the weights larger: one step size can serve a head
    that must move far and a body that must not.
    """
    return body._replace(W={cell: tuple(factor * w for w in W) for cell, W in body.W.items()})


def put_body(theta: MetaParams, body: Body) -> MetaParams:
    """theta with the weights of a body, and with what else it holds; the head stays as it is."""
    W, rest = _parts(theta)
    if not set(body.W) <= set(W) or not set(body.rest) <= set(rest):
        raise InputError(f"this network has no layers {', '.join(sorted(set(body.W) - set(W)))}")
    W, rest = W | body.W, rest | body.rest
    if hasattr(theta, "net"):
        return theta._replace(net=split(theta.net).join(W, rest))
    learned = {name: getattr(theta, name) | cells for name, cells in body.learned.items()}
    return theta._replace(W=W, rest=rest, **learned)


def _parts(theta: MetaParams) -> tuple[Cells[Weights], dict[str, Array]]:
    if hasattr(theta, "net"):
        parts: Any = split(theta.net)
        return parts.W, parts.rest
    if hasattr(theta, "W") and hasattr(theta, "rest"):
        return theta.W, theta.rest
    raise InputError("init_from does not work with this method: its weights are one vector")
