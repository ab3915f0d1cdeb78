"""An adapted network as plain layers, without JAX.

A layer has the name, the arguments and the arrays of a class of `torch.nn`, in the layouts of
PyTorch. `mtnet predict` applies the layers (apply.py), and `mtnet export` writes them in other
formats. What is special to a method becomes ordinary layers here: norms with fixed statistics are
part of their convolution, class means are rows of a linear layer, and an input that is added to the
output is carried through the hidden layers. One layer is none of PyTorch's: the "Attention" of
matching.
"""

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from mtnet.core.options import COSINE_SCALE, EPSILON, FAR, NEVER
from mtnet.files import Arrays
from mtnet.nets.spec import NetSpec

KERNEL, CONVOLUTIONS = 3, 4


class Layer(NamedTuple):
    type: str
    """A class of `torch.nn`, or "Attention"."""
    options: dict[str, Any]
    """Its arguments."""
    arrays: Arrays
    """Its parameters by name."""


def plain_layers(arrays: Arrays, about: dict[str, Any]) -> list[Layer] | None:
    """The layers of a model; ValueError or KeyError if the arrays are not those of a model.

    Args:
        arrays: Of its file, by name.
        about: What its header says.

    Returns:
        The layers, or None if the outputs for an image depend on the other images.
    """
    spec, memory = spec_of(about), about.get("memory")
    if spec.kind == "conv4":
        frozen = about["frozen_stats"] if memory is None else memory["statistics"] == "inductive"
        if not frozen:
            return None
    take = Taker(arrays, "" if memory is None else ".net")
    layers = _mlp(take, spec) if spec.kind == "mlp" else conv4_layers(take, spec, frozen=True)
    if memory is None:
        return layers
    return [*layers, _compare(Taker(arrays, ""), about["method"], spec, **memory)]


def spec_of(about: dict[str, Any]) -> NetSpec:
    """The network that a header describes."""
    return NetSpec(**about["spec"] | {"inputs": tuple(about["spec"]["inputs"])})


class Taker(NamedTuple):
    """Arrays of a file, checked."""

    arrays: Arrays
    prefix: str

    def __call__(self, name: str, *shape: int) -> np.ndarray:
        full = self.prefix + name
        if full not in self.arrays:
            raise ValueError(f"it has no {full}")
        array = self.arrays[full]
        if array.shape != shape or not np.issubdtype(array.dtype, np.floating):
            raise ValueError(f"{full} is {array.dtype}{list(array.shape)}")
        return array


def _linear(weight: np.ndarray, bias: np.ndarray) -> Layer:
    size = {"in_features": weight.shape[1], "out_features": weight.shape[0]}
    return Layer("Linear", size, {"weight": weight, "bias": bias})


RELU = Layer("ReLU", {}, {})


def _mlp(take: Taker, spec: NetSpec) -> list[Layer]:
    prefix = ".mlp" if spec.skip and spec.outputs is not None else ""
    sizes = [spec.inputs[0], *[spec.width] * spec.depth]
    sizes += [] if spec.outputs is None else [spec.outputs]
    linear = [
        (take(f"{prefix}.layers[{i}].weight", m, n), take(f"{prefix}.layers[{i}].bias", m))
        for i, (n, m) in enumerate(pairwise(sizes))
    ]
    if prefix:
        linear = _carry_last_input(linear)
    layers = [layer for pair in linear for layer in (_linear(*pair), RELU)]
    if spec.outputs is None and spec.depth > 1:
        return layers
    return layers[:-1]  # Equinox has no activation after a single layer


def _carry_last_input(
    linear: list[tuple[np.ndarray, np.ndarray]],
) -> list[tuple[np.ndarray, np.ndarray]]:
    """The last input b is added to the output: two more units per layer hold ReLU(b), ReLU(-b)."""
    (first, bias), *middle, (last, last_bias) = linear
    both = np.zeros((2, first.shape[1]), first.dtype)
    both[:, -1] = 1, -1
    none = np.zeros(2, first.dtype)
    wide = [(np.concatenate([first, both]), np.concatenate([bias, none]))]
    for W, b in middle:
        block = np.zeros((W.shape[0] + 2, W.shape[1] + 2), W.dtype)
        block[:-2, :-2], block[-2:, -2:] = W, np.eye(2)
        wide.append((block, np.concatenate([b, none])))
    ends = np.tile(np.array([1, -1], last.dtype), (len(last), 1))
    return [*wide, (np.concatenate([last, ends], axis=1), last_bias)]


def conv4_layers(take: Taker, spec: NetSpec, *, frozen: bool) -> list[Layer]:
    channels, *size = spec.inputs
    layers: list[Layer] = []
    for i in range(CONVOLUTIONS):
        weight = take(f".convolutions[{i}].weight", spec.width, KERNEL, KERNEL, channels)
        offset = take(f".norms[{i}].offset", spec.width)
        if frozen:
            mean, var = (take(f".norms[{i}].statistics[{j}]", spec.width) for j in (0, 1))
            scale = 1 / np.sqrt(var + weight.dtype.type(EPSILON))
            weight, offset = weight * scale[:, None, None, None], offset - mean * scale
        layers += _convolution(weight, offset, size, spec.pool, frozen)
        size = [n // 2 if spec.pool else -(-n // 2) for n in size]
        channels = spec.width
    layers += [] if spec.pool else [Layer("AdaptiveAvgPool2d", {"output_size": 1}, {})]
    layers += [Layer("Flatten", {}, {})]
    if spec.outputs is None:
        return layers
    positions = features_at(spec)
    weight = take(".head.weight", spec.outputs, spec.width * positions[0] * positions[1])
    return [*layers, _linear(_channels_first(weight, spec), take(".head.bias", spec.outputs))]


def _convolution(
    weight: np.ndarray, offset: np.ndarray, size: list[int], pool: bool, frozen: bool
) -> list[Layer]:
    """Zero padding as "SAME", a convolution, a norm unless it is part of the convolution, 2x2
    max-pooling if asked for, and ReLU."""
    stride = 1 if pool else 2
    ends = []
    for n in size:
        missing = max((-(-n // stride) - 1) * stride + KERNEL - n, 0)
        ends.append((missing // 2, missing - missing // 2))
    (top, bottom), (left, right) = ends
    options = {"in_channels": weight.shape[3], "out_channels": weight.shape[0]}
    options |= {"kernel_size": KERNEL, "stride": stride}
    arrays = {
        "weight": np.ascontiguousarray(weight.transpose(0, 3, 1, 2)),
        "bias": offset if frozen else 0 * offset,
    }
    layers = [Layer("ZeroPad2d", {"padding": [left, right, top, bottom]}, {})]
    layers += [Layer("Conv2d", options, arrays)]
    layers += [] if frozen else [Layer("BatchNorm", {}, {"offset": offset})]
    return [*layers, *([Layer("MaxPool2d", {"kernel_size": 2}, {})] if pool else []), RELU]


def features_at(spec: NetSpec) -> tuple[int, int]:
    """Positions of the features of a convolutional network: height and width."""
    _, height, width = spec.inputs
    return (height // 16, width // 16) if spec.pool else (1, 1)


def _channels_first(rows: np.ndarray, spec: NetSpec) -> np.ndarray:
    """Rows over features (height, width, channel) as rows over (channel, height, width)."""
    if spec.kind == "mlp":
        return rows
    by_position = rows.reshape(len(rows), *features_at(spec), spec.width)
    return np.ascontiguousarray(by_position.transpose(0, 3, 1, 2)).reshape(rows.shape)


def _compare(
    take: Taker, method: str, spec: NetSpec, ways: int, rows: int, statistics: str
) -> Layer:
    """Scores of the features against the memory of the support set."""
    height, width = features_at(spec) if spec.kind == "conv4" else (1, 1)
    features = spec.width * height * width
    if method == "matching":
        g = _channels_first(take(".memory.g", rows, features), spec)
        arrays = {"features": unit(g), "labels": take(".memory.y", rows, ways)}
        return Layer("Attention", {"scale": COSINE_SCALE}, arrays)
    if method != "prototypical":
        raise ValueError(f"there are no plain layers of {method}")
    return nearest_mean(_channels_first(take(".memory", ways, features), spec))


def nearest_mean(means: np.ndarray) -> Layer:
    """-|f - c|^2 is linear in f up to a term that all classes share, which a softmax removes.

    Computed from the centre of the means, where the products are smallest.
    """
    c = means.astype(np.float64)
    absent: np.ndarray = np.abs(c).max(axis=1) >= FAR
    centre = c[~absent].mean(axis=0) if not absent.all() else 0 * c[0]
    c = np.where(absent[:, None], 0, c - centre)
    bias = np.where(absent, NEVER, -np.sum(c * c, axis=1) - 2 * c @ centre)
    return _linear((2 * c).astype(means.dtype), bias.astype(means.dtype))


def unit(f: np.ndarray) -> np.ndarray:
    """Features of length 1."""
    return f / np.sqrt(np.sum(f * f, axis=-1, keepdims=True) + f.dtype.type(1e-12))
