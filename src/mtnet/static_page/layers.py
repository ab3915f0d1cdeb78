"""Layers inside an ONNX graph, forwards and backwards.

A layer returns its output and a function that adds the nodes of its derivative: from the gradient
of its output to the gradients of its matrix and of its input.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from mtnet.core.options import EPSILON
from mtnet.export.graph import Graph
from mtnet.plain.layers import KERNEL

STRIDE = 2
POSITIONS = [0, 2, 3]
"""Axes of a batch of images that are not the channels."""


class Norm(NamedTuple):
    """y, and the statistics that it used, (1, channels, 1, 1)."""

    y: str
    mean: str
    scale: str
    back: Callable[[str], str]


def with_ones(graph: Graph, x: str) -> str:
    """One more column, of ones."""
    return graph.add("Pad", x, graph.constant([0, 0, 0, 1], np.int64), graph.constant(1))


def linear(graph: Graph, x: str, A: str) -> tuple[str, Callable[[str], tuple[str, str]]]:
    """x A', where the last column of A is the bias."""
    inputs = with_ones(graph, x)

    def back(g: str) -> tuple[str, str]:
        all_columns = graph.add("MatMul", g, A)
        ends = (graph.constant([value], np.int64) for value in (0, -1, 1))
        return graph.add("Gemm", g, inputs, transA=1), graph.add("Slice", all_columns, *ends)

    return graph.add("Gemm", inputs, A, transB=1), back


def rectify(graph: Graph, x: str) -> tuple[str, Callable[[str], str]]:
    """ReLU."""

    def back(g: str) -> str:
        zero = graph.constant(0)
        return graph.add("Where", graph.add("Greater", x, zero), g, zero)

    return graph.add("Relu", x), back


def convolve(
    graph: Graph, x: str, A: str, channels: int, size: int
) -> tuple[str, Callable[[str], str], Callable[[str], str]]:
    """A convolution of stride 2 with zero padding, as "SAME", of square images.

    <g, x * W> is linear in each of its arguments, so both derivatives are convolutions too: the
    kernels that of the images with g, whose entries are a stride apart.

    Args:
        graph: The graph.
        x: Images, (examples, channels, size, size).
        A: Kernels as a matrix.
        channels: Of the images.
        size: Of the images.

    Returns:
        The output, and the gradients of A and of x, given that of the output.
    """
    W = as_kernels(graph, A, channels)
    place: dict[str, Any] = {"pads": same_pads(size)}

    def back_to_kernels(g: str) -> str:
        images, gradients = (graph.add("Transpose", a, perm=[1, 0, 2, 3]) for a in (x, g))
        dW = graph.add("Conv", images, gradients, dilations=[STRIDE] * 2, **place)
        flat = graph.constant([0, -1], np.int64)
        return graph.add("Reshape", graph.add("Transpose", dW, perm=[1, 0, 2, 3]), flat)

    def back_to_images(g: str) -> str:
        return graph.add("ConvTranspose", g, W, strides=[STRIDE] * 2, **place)

    y = graph.add("Conv", x, W, strides=[STRIDE] * 2, **place)
    return y, back_to_kernels, back_to_images


def as_kernels(graph: Graph, A: str, channels: int) -> str:
    """The rows of a matrix as kernels."""
    return graph.add("Reshape", A, graph.constant([-1, channels, KERNEL, KERNEL], np.int64))


def halved(size: int) -> int:
    """The size of the output of a convolution."""
    return -(-size // STRIDE)


def same_pads(size: int) -> list[int]:
    """Zeros at the top, left, bottom and right."""
    missing = max((halved(size) - 1) * STRIDE + KERNEL - size, 0)
    return [missing // 2] * 2 + [missing - missing // 2] * 2


def normalise(graph: Graph, x: str, offset: str) -> Norm:
    """(x - mean) / sqrt(var + epsilon) + offset, with the statistics of all images."""
    mean = graph.add("ReduceMean", x, axes=POSITIONS)
    centred = graph.add("Sub", x, mean)
    var = graph.add("ReduceMean", graph.add("Mul", centred, centred), axes=POSITIONS)
    deviation = graph.add("Sqrt", graph.add("Add", var, graph.constant(EPSILON)))
    scale = graph.add("Reciprocal", deviation)
    unit = graph.add("Mul", centred, scale)

    def back(g: str) -> str:
        """scale * (g - mean(g) - unit * mean(g * unit))."""
        along = graph.add("ReduceMean", graph.add("Mul", g, unit), axes=POSITIONS)
        rest = graph.add("Sub", g, graph.add("ReduceMean", g, axes=POSITIONS))
        rest = graph.add("Sub", rest, graph.add("Mul", unit, along))
        return graph.add("Mul", rest, scale)

    return Norm(graph.add("Add", unit, offset), mean, scale, back)
