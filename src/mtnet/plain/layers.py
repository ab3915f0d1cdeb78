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
    """A class of `torch.nn`, "Attention", or, in networks that are not exported, "Centre"."""
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
        if not frozen and (spec.norms or spec.centre):
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
Pair = tuple[np.ndarray, np.ndarray]
"""Weight and bias of a linear layer."""


def _mlp(take: Taker, spec: NetSpec) -> list[Layer]:
    prefix = ".mlp" if spec.skip else ""
    sizes = [spec.inputs[0], *[spec.width] * spec.depth]
    sizes += [] if spec.outputs is None else [spec.outputs]
    linear = [
        (take(f"{prefix}.layers[{i}].weight", m, n), take(f"{prefix}.layers[{i}].bias", m))
        for i, (n, m) in enumerate(pairwise(sizes))
    ]
    if spec.outputs is None:
        return _features(linear, spec)
    if spec.skip:
        kept = np.eye(spec.inputs[0], dtype=linear[0][0].dtype)[-1:]
        (last, bias), ends = linear[-1], np.array([1, -1], kept.dtype)
        last = np.concatenate([last, np.tile(ends, (len(last), 1))], axis=1)
        linear = [*_carry(linear[:-1], kept), (last, bias)]
    return [layer for pair in linear for layer in (_linear(*pair), RELU)][:-1]


def _features(linear: list[Pair], spec: NetSpec) -> list[Layer]:
    """The layers of a network without a head; with `skip` the inputs come before its features."""
    inputs, width = spec.inputs[0], spec.width
    eye = np.eye(inputs, dtype=linear[0][0].dtype)
    if spec.depth == 1:  # Equinox has no activation after a single layer
        [(W, b)] = linear
        whole = (np.concatenate([eye, W]), np.concatenate([0 * eye[0], b])) if spec.skip else (W, b)
        return [_linear(*whole)]
    wide = _carry(linear, eye) if spec.skip else linear
    layers = [layer for pair in wide for layer in (_linear(*pair), RELU)]
    if not spec.skip:
        return layers
    join = np.zeros((inputs + width, width + 2 * inputs), eye.dtype)
    join[:inputs, width : width + inputs], join[:inputs, width + inputs :] = eye, -eye
    join[inputs:, :width] = np.eye(width)
    return [*layers, _linear(join, 0 * join[:, 0])]


def _carry(linear: list[Pair], kept: np.ndarray) -> list[Pair]:
    """Hidden layers that also hold ReLU(v) and ReLU(-v), last, where v = kept x."""
    (first, bias), *rest = linear
    both = np.concatenate([kept, -kept])
    none, more = np.zeros(len(both), first.dtype), len(both)
    wide = [(np.concatenate([first, both]), np.concatenate([bias, none]))]
    for W, b in rest:
        block = np.zeros((W.shape[0] + more, W.shape[1] + more), W.dtype)
        block[:-more, :-more], block[-more:, -more:] = W, np.eye(more)
        wide.append((block, np.concatenate([b, none])))
    return wide


def conv4_layers(take: Taker, spec: NetSpec, *, frozen: bool) -> list[Layer]:
    channels, *size = spec.inputs
    layers: list[Layer] = []
    for i in range(CONVOLUTIONS):
        weight = take(f".convolutions[{i}].weight", spec.width, KERNEL, KERNEL, channels)
        offset = take(f".norms[{i}].offset", spec.width)
        if spec.norms and frozen:
            mean, var = (take(f".norms[{i}].statistics[{j}]", spec.width) for j in (0, 1))
            scale = 1 / np.sqrt(var + weight.dtype.type(EPSILON))
            weight, offset = weight * scale[:, None, None, None], offset - mean * scale
        layers += _convolution(weight, offset, size, spec.pool, frozen or not spec.norms)
        size = [n // 2 if spec.pool else -(-n // 2) for n in size]
        channels = spec.width
    layers += [] if spec.pool else [Layer("AdaptiveAvgPool2d", {"output_size": 1}, {})]
    layers += [Layer("Flatten", {}, {})]
    if spec.outputs is None:
        return layers
    positions = features_at(spec)
    features = spec.width * positions[0] * positions[1]
    weight, bias = take(".head.weight", spec.outputs, features), take(".head.bias", spec.outputs)
    if spec.centre:
        shift = take(".centre.offset", features)
        if frozen:
            bias = bias + weight @ (shift - take(".centre.statistics[0]", features))
        else:
            [shift] = _channels_first(shift[None], spec)
            layers += [Layer("Centre", {}, {"offset": shift})]
    return [*layers, _linear(_channels_first(weight, spec), bias)]


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
    features = spec.width * height * width + (spec.inputs[0] if spec.skip else 0)
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
