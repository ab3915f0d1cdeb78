"""Convolutional networks whose norms see all images of a call together, applied with NumPy.

The outputs for an image then depend on the other images, so these are no plain layers that could
be exported. Methods that compare features normalise the support set and the queries alike.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from mtnet.core.options import COSINE_SCALE, FAR
from mtnet.files import Arrays
from mtnet.nets.spec import NetSpec
from mtnet.plain.apply import APPLY, apply_together, statistics
from mtnet.plain.layers import Layer, Taker, conv4_layers, nearest_mean, spec_of, unit


def batch_outputs(arrays: Arrays, about: dict[str, Any]) -> Callable[[np.ndarray], np.ndarray]:
    """The outputs of a model file whose norms see all images of a call.

    Args:
        arrays: Of its file, by name.
        about: What its header says.

    Returns:
        A function of images, (examples, channel, height, width).
    """
    spec = spec_of(about)
    if "memory" not in about:
        layers = conv4_layers(Taker(arrays, ""), spec, frozen=False)
        return lambda x: apply_together(layers, x)
    memory, take = about["memory"], Taker(arrays, "")
    support = Support(take(".net.x", memory["rows"], *spec.inputs), arrays[".y"], memory["ways"])
    if support.y.shape != (memory["rows"],):
        raise ValueError(f".y is {support.y.dtype}{list(support.y.shape)}")
    layers = conv4_layers(Taker(arrays, ".net.net"), spec, frozen=False)
    return lambda x: compare(about["method"], layers, support, x, together=True)


class Support(NamedTuple):
    """The examples of a task."""

    x: np.ndarray
    y: np.ndarray
    ways: int


def compare(
    method: str, layers: list[Layer], support: Support, x: np.ndarray, *, together: bool
) -> np.ndarray:
    """Logits of images by a method that compares their features with those of the support set.

    Args:
        method: Its name.
        layers: The network, with norms of the batch.
        support: The examples.
        x: Queries.
        together: Norms see support and queries as one batch, not the support set only.
    """
    if together:
        features = apply_together(layers, np.concatenate([support.x, x]))
        f, queries = features[: len(support.x)], features[len(support.x) :]
    else:
        layers = freeze_norms(layers, support.x)
        f, queries = apply_together(layers, support.x), apply_together(layers, x)
    return COMPARE[method](f, support.y, support.ways, queries)


def freeze_norms(layers: list[Layer], x: np.ndarray) -> list[Layer]:
    """The layers with the statistics of these images in place of those of a batch."""
    frozen = []
    for layer in layers:
        if layer.type == "BatchNorm":
            mean, var = statistics(x)
            layer = layer._replace(arrays=layer.arrays | {"mean": mean, "var": var})
        x = APPLY[layer.type](x, **layer.options, **layer.arrays)
        frozen.append(layer)
    return frozen


def _nearest_mean(f: np.ndarray, y: np.ndarray, ways: int, x: np.ndarray) -> np.ndarray:
    means = [f[y == k].mean(axis=0) if (y == k).any() else 0 * f[0] + FAR for k in range(ways)]
    return apply_together([nearest_mean(np.stack(means))], x)


def _attention(f: np.ndarray, y: np.ndarray, ways: int, x: np.ndarray) -> np.ndarray:
    arrays = {"features": unit(f), "labels": (y[:, None] == np.arange(ways)).astype(f.dtype)}
    return apply_together([Layer("Attention", {"scale": COSINE_SCALE}, arrays)], x)


def _nearest(f: np.ndarray, y: np.ndarray, ways: int, x: np.ndarray) -> np.ndarray:
    """The logit of a class is its largest cosine."""
    cosines = unit(x) @ unit(f).T
    member = y[:, None] == np.arange(ways)
    return np.where(member, cosines[:, :, None], -2).max(axis=1)


COMPARE: dict[str, Callable[..., np.ndarray]] = {
    "prototypical": _nearest_mean,
    "matching": _attention,
    "nearest-neighbour": _nearest,
}
"""Methods that need no gradient on a task: `(features, labels, ways, queries) -> logits`."""


def trained_layers(arrays: Arrays, spec: NetSpec) -> list[Layer]:
    """The network of a file of meta-parameters, of a method in `COMPARE`."""
    return conv4_layers(Taker(arrays, ".net"), spec, frozen=False)
