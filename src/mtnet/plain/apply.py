"""Plain layers applied to examples with NumPy: nothing to compile."""

from collections.abc import Callable

import numpy as np

from mtnet.core.options import EPSILON, NEVER
from mtnet.plain.layers import Layer, unit

ROWS, IMAGES = 65_536, 16
"""Examples that are computed at the same time."""


def apply_layers(layers: list[Layer], x: np.ndarray) -> np.ndarray:
    """Outputs of a network for a batch: (examples, inputs) or (examples, channel, height, width).

    Args:
        layers: The network.
        x: Inputs; the leading axis counts the examples.

    Returns:
        Outputs, (examples, outputs).
    """
    some = ROWS if x.ndim == 2 else IMAGES
    parts = [apply_together(layers, x[i : i + some]) for i in range(0, max(len(x), 1), some)]
    return np.concatenate(parts)


def apply_together(layers: list[Layer], x: np.ndarray) -> np.ndarray:
    """The same for all examples at once."""
    for layer in layers:
        x = APPLY[layer.type](x, **layer.options, **layer.arrays)
    return x


def _apply_linear(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, **_: int) -> np.ndarray:
    return x @ weight.T + bias


def _apply_convolution(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray, stride: int, kernel_size: int, **_: int
) -> np.ndarray:
    windows = np.lib.stride_tricks.sliding_window_view(x, (kernel_size, kernel_size), (2, 3))
    y = np.tensordot(windows[:, :, ::stride, ::stride], weight, ([1, 4, 5], [1, 2, 3])) + bias
    return np.moveaxis(y, -1, 1)


def _apply_padding(x: np.ndarray, padding: list[int]) -> np.ndarray:
    left, right, top, bottom = padding
    return np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))


def _apply_pooling(x: np.ndarray, kernel_size: int) -> np.ndarray:
    n, channels, height, width = x.shape
    x = x[:, :, : height // 2 * 2, : width // 2 * 2]
    return x.reshape(n, channels, height // 2, 2, width // 2, 2).max(axis=(3, 5))


def _apply_attention(
    x: np.ndarray, features: np.ndarray, labels: np.ndarray, scale: float
) -> np.ndarray:
    """log p(class): the log of the attention to the examples of each class."""
    a = softmax(x.dtype.type(scale) * unit(x) @ features.T)
    present = labels.any(axis=0)
    p = a @ labels
    return np.where(present, np.log(np.where(present, p, 1)), NEVER).astype(p.dtype)


def statistics(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of each channel, over examples and positions."""
    mean = x.mean(axis=(0, 2, 3))
    return mean, np.maximum(np.square(x).mean(axis=(0, 2, 3)) - np.square(mean), 0)


def _apply_norm(
    x: np.ndarray,
    offset: np.ndarray,
    mean: np.ndarray | None = None,
    var: np.ndarray | None = None,
) -> np.ndarray:
    if mean is None or var is None:
        mean, var = statistics(x)
    scale = 1 / np.sqrt(var + var.dtype.type(EPSILON))
    return x * scale[:, None, None] + (offset - mean * scale)[:, None, None]


APPLY: dict[str, Callable[..., np.ndarray]] = {
    "Linear": _apply_linear,
    "Conv2d": _apply_convolution,
    "ZeroPad2d": _apply_padding,
    "MaxPool2d": _apply_pooling,
    "ReLU": lambda x: np.maximum(x, 0),
    "AdaptiveAvgPool2d": lambda x, output_size: x.mean(axis=(2, 3), keepdims=True),
    "Flatten": lambda x: x.reshape(len(x), -1),
    "BatchNorm": _apply_norm,
    "Centre": lambda x, offset: x + (offset - x.mean(axis=0)),
    "Attention": _apply_attention,
}


def softmax(logits: np.ndarray) -> np.ndarray:
    """Probabilities of the classes, (examples, classes)."""
    e = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)
