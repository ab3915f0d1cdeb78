"""The cells of a served network as matrices, with what the inner loop multiplies gradients by.

A cell is one matrix: a row per output, and the bias as its last column. So `T`, which mixes rows,
is one product, and a layer is one product with inputs that end in a one.
"""

from typing import Any, NamedTuple

import jax
import numpy as np

from mtnet.adapted import KEY
from mtnet.core.cells import Cells, fold
from mtnet.core.inner import Theta, draw_masks, rescale
from mtnet.core.rules import RULES
from mtnet.serve.networks import CURVE, ServedNetwork
from mtnet.userdata.schema import to_plain

COMPARES = "prototypical"
"""The method that has no steps: it compares with class means."""


class Cell(NamedTuple):
    """A <- A - rate * T (M * (T' dL/dA)); None stands for the identity, and for ones."""

    A: np.ndarray
    T: np.ndarray | None = None
    M: list[np.ndarray] | None = None
    """One mask per step."""
    rate: np.ndarray | None = None


def problem_of(network: ServedNetwork) -> str | None:
    """Why the static page cannot learn with a network; None if it can."""
    method, known = network.config.method, (*RULES, COMPARES)
    if network.inputs["kind"] == "table":
        shown = network.inputs["schema"] == to_plain(CURVE) and network.spec.kind == "mlp"
    else:
        shown = network.inputs["kind"] == "drawings" and not network.spec.pool
    if network.spec.centre or not network.spec.norms:
        return f"{network.name} has centred features or folded norms, which the page does not show"
    if not shown:
        return f"{network.name} is for no tab of the page: it needs drawings or curves"
    if method in known:
        return None
    return (
        f"{network.name} was trained with {method}, which does not learn in a browser; methods "
        f"that do: {', '.join(known)}"
    )


def cells_of(network: ServedNetwork) -> Cells[Cell]:
    """The cells in the order of the layers; a head that classes share has one row."""
    if network.config.method == COMPARES:
        convolutions = network.theta.net.convolutions
        return {f"convolutions.{i}": Cell(matrix([c.weight])) for i, c in enumerate(convolutions)}
    theta, inner = network.theta, network.config.inner
    assert isinstance(theta, Theta)
    alpha = network.config.members[0][1]
    T, W = rescale(theta, inner, alpha)
    masks = draw_masks(theta.zeta, inner, jax.random.key(KEY), network.steps, training=False)
    by_step = [_masks_at(masks, step, inner.draw == "step") for step in range(network.steps)]
    rates: Cells[Any] = dict(theta.alpha) or dict.fromkeys(W, alpha)
    return {
        name: _shared(
            Cell(
                matrix(arrays),
                np.asarray(T[name]) if name in T else None,
                [_rows(masks[name]) for masks in by_step] if name in theta.zeta else None,
                _rows(rates[name]),
            )
        )
        for name, arrays in fold(T, W).items()
    }


def offsets_of(network: ServedNetwork) -> list[np.ndarray]:
    """The offsets of the norms, in the order of the layers; none without norms."""
    if network.spec.kind == "mlp":
        return []
    if network.config.method == COMPARES:
        return [np.asarray(norm.offset) for norm in network.theta.net.norms]
    return [np.asarray(network.theta.rest[f"norms.{i}.offset"]) for i in range(4)]


def matrix(arrays: Any) -> np.ndarray:
    """A weight and its bias as one matrix; the inputs of a convolution are channels first."""
    weight, *bias = (np.asarray(array) for array in arrays)
    if weight.ndim == 4:  # (outputs, height, width, channels)
        weight = weight.transpose(0, 3, 1, 2)
    return np.concatenate([weight.reshape(len(weight), -1), *(b[:, None] for b in bias)], axis=1)


def _rows(values: Any) -> np.ndarray:
    """What multiplies a matrix: of its shape, one number per row, or one number."""
    return matrix(values) if isinstance(values, tuple) else np.asarray(values).reshape(-1, 1)


def _masks_at(masks: Cells[Any], step: int, per_step: bool) -> Cells[Any]:
    return jax.tree.map(lambda m: m[step], masks) if per_step else masks


def _shared(cell: Cell) -> Cell:
    """The T of a shared head is one number t: T (M * T' g) = t^2 M g."""
    if cell.T is None or cell.T.ndim == 2:
        return cell
    assert cell.rate is not None
    return cell._replace(T=None, rate=cell.rate * np.square(cell.T).reshape(1, 1))
