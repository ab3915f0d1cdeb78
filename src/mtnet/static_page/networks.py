"""Networks inside an ONNX graph: their outputs for the examples, and the gradient of a loss."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from mtnet.export.graph import Graph
from mtnet.nets.spec import NetSpec
from mtnet.static_page.layers import (
    as_kernels,
    convolve,
    halved,
    linear,
    normalise,
    rectify,
    same_pads,
)

ROWS = [-1, 1]


class Applied(NamedTuple):
    """A network and the examples that it learns from."""

    outputs: str
    """Or features, if the network has no head."""
    layers: list[str]
    """One matrix per layer, whose last column is the bias: norms are part of them, with the
    statistics of these examples."""
    back: Callable[[str], list[str]]
    """From the gradient of the outputs to those of the matrices of the cells."""


def apply_network(
    graph: Graph, spec: NetSpec, x: str, cells: list[str], offsets: list[np.ndarray]
) -> Applied:
    """The network with the matrices `cells`, for the examples x."""
    if spec.kind == "mlp":
        return _apply_mlp(graph, x, cells)
    return _apply_conv4(graph, spec, x, cells, offsets)


def _apply_mlp(graph: Graph, x: str, cells: list[str]) -> Applied:
    backs = []
    for i, A in enumerate(cells):
        x, back_linear = linear(graph, x, A)
        x, back_relu = (x, _same) if i == len(cells) - 1 else rectify(graph, x)
        backs.append((back_linear, back_relu))

    def back(g: str) -> list[str]:
        gradients: list[str] = []
        for back_linear, back_relu in reversed(backs):
            dA, g = back_linear(back_relu(g))
            gradients.insert(0, dA)
        return gradients

    return Applied(x, cells, back)


def _apply_conv4(
    graph: Graph, spec: NetSpec, x: str, cells: list[str], offsets: list[np.ndarray]
) -> Applied:
    (channels, size, _), backs, layers = spec.inputs, [], []
    for A, values in zip(cells, offsets, strict=False):  # the head has no norm
        y, to_kernels, to_images = convolve(graph, x, A, channels, size)
        offset = graph.constant(values.reshape(1, -1, 1, 1))
        norm = normalise(graph, y, offset)
        x, back_relu = rectify(graph, norm.y)
        shift = graph.add("Sub", offset, graph.add("Mul", norm.mean, norm.scale))
        layers.append(_joined(graph, A, norm.scale, shift))
        backs.append((back_relu, norm.back, to_kernels, to_images))
        channels, size = spec.width, halved(size)
    outputs = features = graph.add("ReduceMean", x, axes=[2, 3], keepdims=0)
    if spec.outputs is not None:
        outputs, back_head = linear(graph, features, cells[-1])
        layers.append(cells[-1])

    def back(g: str) -> list[str]:
        dA, g = back_head(g)
        gradients, g = [dA], _spread(graph, g, x, size)
        for i, (back_relu, back_norm, to_kernels, to_images) in reversed([*enumerate(backs)]):
            g = back_norm(back_relu(g))
            gradients.insert(0, to_kernels(g))
            g = to_images(g) if i else g
        return gradients

    return Applied(outputs, layers, back)


def _joined(graph: Graph, A: str, scale: str, shift: str) -> str:
    """A convolution and the norm after it, as one matrix with a bias."""
    rows = graph.constant(ROWS, np.int64)
    scale, shift = (graph.add("Reshape", a, rows) for a in (scale, shift))
    return graph.add("Concat", graph.add("Mul", A, scale), shift, axis=1)


def _spread(graph: Graph, g: str, x: str, size: int) -> str:
    """The gradient of a mean over positions, at each of them."""
    share = graph.add("Div", g, graph.constant(size * size))
    images = graph.add("Unsqueeze", share, graph.constant([2, 3], np.int64))
    return graph.add("Expand", images, graph.add("Shape", x))


def _same(g: str) -> str:
    return g


def predict_network(graph: Graph, spec: NetSpec, x: str, layers: list[str]) -> str:
    """The outputs, or features, of the layers that `apply_network` returns."""
    if spec.kind == "mlp":
        for A in layers[:-1]:
            x = graph.add("Relu", linear(graph, x, A)[0])
        return linear(graph, x, layers[-1])[0]
    channels, size, _ = spec.inputs
    for A in layers[:4]:
        kernels, bias = _parted(graph, A, channels)
        x = graph.add("Conv", x, kernels, bias, strides=[2, 2], pads=same_pads(size))
        x, channels, size = graph.add("Relu", x), spec.width, halved(size)
    features = graph.add("ReduceMean", x, axes=[2, 3], keepdims=0)
    return features if spec.outputs is None else linear(graph, features, layers[-1])[0]


def _parted(graph: Graph, A: str, channels: int) -> tuple[str, str]:
    """The kernels and the bias of a matrix."""
    first, last, end = (graph.constant([n], np.int64) for n in (0, -1, np.iinfo(np.int64).max))
    axis = graph.constant([1], np.int64)
    weights = graph.add("Slice", A, first, last, axis)
    bias = graph.add("Slice", A, last, end, axis)
    return as_kernels(graph, weights, channels), graph.add(
        "Reshape", bias, graph.constant([-1], np.int64)
    )
