"""Two ONNX graphs of a served network: one learns a task from examples, one predicts with it.

`learn` reads `x` and `y`: images and one column per class, or numbers. It returns the `losses` and
`outputs` for the examples after 0, 1, ... steps, how far each cell `moved`, and `layer0`,
`layer1`, ...: the matrices of the network after each step. `predict` reads these matrices and `x`,
and returns `predictions` after each step: probabilities, or numbers.
"""

from typing import Any, NamedTuple

import numpy as np
from onnx import TensorProto

from mtnet.export.graph import Graph
from mtnet.nets.spec import NetSpec
from mtnet.serve.networks import ServedNetwork
from mtnet.static_page.cells import COMPARES, Cell, cells_of, offsets_of
from mtnet.static_page.networks import apply_network, predict_network

FLOAT = TensorProto.FLOAT
ALL: dict[str, Any] = {"keepdims": 0}


class After(NamedTuple):
    """A task after some steps."""

    layers: list[str]
    outputs: str
    """For the examples."""
    loss: str


def learn_graph(network: ServedNetwork) -> Any:
    """The graph that learns a task."""
    graph, spec = Graph(), network.spec
    x = graph.input("x", FLOAT, ["examples", *spec.inputs])
    y = graph.input("y", FLOAT, ["examples", "outputs"])
    compares = network.config.method == COMPARES
    path, moved = (_class_means if compares else _steps)(graph, network, x, y)
    _stack(graph, "losses", [after.loss for after in path], [len(path)])
    outputs = [after.outputs for after in path]
    _stack(graph, "outputs", outputs, [len(path), "examples", "outputs"])
    graph.add("Concat", *moved, axis=0, named=graph.output("moved", FLOAT, ["cells"]))
    for i, steps in enumerate(zip(*(after.layers for after in path), strict=True)):
        _stack(graph, f"layer{i}", list(steps), [len(path), f"rows{i}", f"columns{i}"])
    return graph.model()


def predict_graph(network: ServedNetwork, layers: int) -> Any:
    """The graph that predicts, given that many layers."""
    graph, spec = Graph(), network.spec
    compares = network.config.method == COMPARES
    steps = 1 if compares else network.steps + 1
    x = graph.input("x", FLOAT, ["queries", *spec.inputs])
    names = [
        graph.input(f"layer{i}", FLOAT, [steps, f"rows{i}", f"columns{i}"]) for i in range(layers)
    ]
    outputs = []
    for step in range(steps):
        place = graph.constant(step, np.int64)
        matrices = [graph.add("Gather", name, place, axis=0) for name in names]
        if compares:
            features = predict_network(graph, spec, x, matrices[:-1])
            outputs.append(_nearness(graph, features, matrices[-1]))
        else:
            outputs.append(predict_network(graph, spec, x, matrices))
    shape = [steps, "queries", "outputs"]
    if not network.classifies:
        _stack(graph, "predictions", outputs, shape)
        return graph.model()
    stacked = _stacked(graph, outputs)
    scaled = graph.add("Div", stacked, graph.constant(network.temperature))
    graph.add("Softmax", scaled, named=graph.output("predictions", FLOAT, shape), axis=-1)
    return graph.model()


def _steps(graph: Graph, network: ServedNetwork, x: str, y: str) -> tuple[list[After], list[str]]:
    """A_{t+1} = A_t - rate * T (M * (T' dL/dA_t)), one step after the other; and what moved."""
    cells, offsets = cells_of(network), offsets_of(network)
    first = [_initial(graph, network.spec, name, cell, y) for name, cell in cells.items()]
    fixed = [_fixed(graph, cell) for cell in cells.values()]
    loss_of = _cross_entropy if network.classifies else _squares
    A, path = first, []
    for step in range(network.steps + 1):
        applied = apply_network(graph, network.spec, x, A, offsets)
        loss, gradient = loss_of(graph, applied.outputs, y)
        path.append(After(applied.layers, applied.outputs, loss))
        if step == network.steps:
            break
        gradients = zip(A, applied.back(gradient), cells.values(), fixed, strict=True)
        A = [
            graph.add("Sub", a, _move(graph, g, T, _mask(graph, cell, step), rate))
            for a, g, cell, (T, rate) in gradients
        ]
    return path, [_change(graph, a, b) for a, b in zip(first, A, strict=True)]


def _initial(graph: Graph, spec: NetSpec, name: str, cell: Cell, y: str) -> str:
    """A of a cell before the first step; a shared head has a row for each column of y."""
    A = graph.constant(cell.A)
    if name != spec.head or len(cell.A) == spec.outputs:
        return A
    rows = graph.add("Shape", y, start=1, end=2)
    columns = graph.constant(cell.A.shape[1:], np.int64)
    return graph.add("Expand", A, graph.add("Concat", rows, columns, axis=0))


def _fixed(graph: Graph, cell: Cell) -> tuple[str | None, str]:
    assert cell.rate is not None
    return None if cell.T is None else graph.constant(cell.T), graph.constant(cell.rate)


def _mask(graph: Graph, cell: Cell, step: int) -> str | None:
    return None if cell.M is None else graph.constant(cell.M[step])


def _move(graph: Graph, g: str, T: str | None, M: str | None, rate: str) -> str:
    """rate * T (M * (T' g))."""
    g = g if T is None else graph.add("Gemm", T, g, transA=1)
    g = g if M is None else graph.add("Mul", g, M)
    g = g if T is None else graph.add("MatMul", T, g)
    return graph.add("Mul", g, rate)


def _change(graph: Graph, first: str, last: str) -> str:
    """|A' - A| / |A|, as a list of one number."""
    moved, size = (
        graph.add("ReduceL2", a, keepdims=0) for a in (graph.add("Sub", last, first), first)
    )
    return graph.add("Unsqueeze", graph.add("Div", moved, size), graph.constant([0], np.int64))


def _cross_entropy(graph: Graph, outputs: str, y: str) -> tuple[str, str]:
    """The loss, and its gradient (softmax - y) / examples."""
    count = graph.add("ReduceSum", y, **ALL)
    logs = graph.add("LogSoftmax", outputs, axis=1)
    total = graph.add("ReduceSum", graph.add("Mul", logs, y), **ALL)
    p = graph.add("Softmax", outputs, axis=1)
    loss = graph.add("Neg", graph.add("Div", total, count))
    return loss, graph.add("Div", graph.add("Sub", p, y), count)


def _squares(graph: Graph, outputs: str, y: str) -> tuple[str, str]:
    """The loss, and its gradient 2 (outputs - y) / numbers."""
    error = graph.add("Sub", outputs, y)
    loss = graph.add("ReduceMean", graph.add("Mul", error, error), **ALL)
    count = graph.add("Cast", graph.add("Size", y), to=FLOAT)
    twice = graph.add("Mul", error, graph.constant(2))
    return loss, graph.add("Div", twice, count)


def _class_means(
    graph: Graph, network: ServedNetwork, x: str, y: str
) -> tuple[list[After], list[str]]:
    """No steps, and nothing moves: one more layer has the mean features of each class as rows."""
    cells = [graph.constant(cell.A) for cell in cells_of(network).values()]
    applied = apply_network(graph, network.spec, x, cells, offsets_of(network))
    total = graph.add("Gemm", y, applied.outputs, transA=1)
    count = graph.add("ReduceSum", y, graph.constant([0], np.int64), keepdims=0)
    column = graph.add("Unsqueeze", count, graph.constant([1], np.int64))
    means = graph.add("Div", total, column)
    outputs = _nearness(graph, applied.outputs, means)
    loss, _ = _cross_entropy(graph, outputs, y)
    return [After([*applied.layers, means], outputs, loss)], [graph.constant([])]


def _nearness(graph: Graph, features: str, means: str) -> str:
    """-|f - c|^2 for each example and class."""
    each = graph.add("Unsqueeze", features, graph.constant([1], np.int64))
    apart = graph.add("Sub", each, means)
    return graph.add("Neg", graph.add("ReduceSumSquare", apart, axes=[2], keepdims=0))


def _stacked(graph: Graph, values: list[str]) -> str:
    """With a leading axis of steps."""
    axis = graph.constant([0], np.int64)
    return graph.add("Concat", *(graph.add("Unsqueeze", v, axis) for v in values), axis=0)


def _stack(graph: Graph, name: str, values: list[str], shape: list[Any]) -> None:
    graph.add("Identity", _stacked(graph, values), named=graph.output(name, FLOAT, shape))
