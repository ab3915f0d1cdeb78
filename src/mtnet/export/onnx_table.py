"""The columns of a table inside an ONNX graph: scales, categories, waves and trees."""

from typing import Any

import numpy as np
from onnx import TensorProto

from mtnet.userdata.schema import Column, Schema
from mtnet.userdata.trees import Trees

UNKNOWN = "a level that no training group has"


def encode_rows(graph: Any, schema: Schema) -> str:
    """The inputs of the network, as `mtnet.userdata.schema.encode_all` makes them."""
    parts = [_column(graph, column, schema.missing == "mean") for column in schema.inputs]
    raw = parts[0] if len(parts) == 1 else graph.add("Concat", *parts, axis=1)
    x = _with_waves(graph, schema, raw) if schema.waves else raw
    if schema.base is None:
        return x
    return graph.add("Concat", x, _trees(graph, schema.base, raw), axis=1)


def _column(graph: Any, column: Column, fill: bool) -> str:
    if column.levels is not None:
        text = graph.input(column.name, TensorProto.STRING, ["examples", 1])
        one_hot = graph.add("OneHotEncoder", text, cats_strings=list(column.levels), zeros=1)
        return graph.add("Flatten", one_hot)
    value = graph.input(column.name, TensorProto.DOUBLE, ["examples", 1])
    mean, spread = (graph.constant(n, np.float64) for n in (column.mean, column.spread))
    if fill:
        value = graph.add("Where", graph.add("IsNaN", value), mean, value)
    scaled = graph.add("Div", graph.add("Sub", value, mean), spread)
    return graph.add("Cast", scaled, to=TensorProto.FLOAT)


def _with_waves(graph: Any, schema: Schema, raw: str) -> str:
    numeric = [c.levels is None for c in schema.inputs for _ in c.levels or (0,)]
    places = graph.constant(np.flatnonzero(numeric), np.int64)
    numbers = graph.add("Cast", graph.add("Gather", raw, places, axis=1), to=TensorProto.DOUBLE)
    columns = graph.add("Unsqueeze", numbers, graph.constant([2], np.int64))
    frequency = np.arange(1, schema.waves + 1) * np.pi / np.sqrt(3)
    angle = graph.add("Mul", columns, graph.constant(frequency, np.float64))
    flat = graph.add("Flatten", angle)
    quarter = graph.add("Add", flat, graph.constant(np.pi / 2, np.float64))
    waves = [graph.add("Sin", angle) for angle in (flat, quarter)]  # cos(a) = sin(a + pi / 2)
    floats = [graph.add("Cast", wave, to=TensorProto.FLOAT) for wave in waves]
    return graph.add("Concat", raw, *floats, axis=1)


def _trees(graph: Any, trees: Trees, raw: str) -> str:
    """The prediction of the trees; a node is a position in the lists of all trees."""
    count = len(trees.number)
    if not count:
        return graph.add("Expand", graph.constant([[trees.first]]), _column_shape(graph, raw))
    tree = np.repeat(np.arange(len(trees.roots)), np.diff([*trees.roots, count])).tolist()
    first = [trees.roots[t] for t in tree]
    leaf = [trees.left[i] == i for i in range(count)]
    nodes = [i - a for i, a in enumerate(first)]
    return graph.add(
        "TreeEnsembleRegressor",
        raw,
        n_targets=1,
        base_values=[trees.first],
        nodes_treeids=tree,
        nodes_nodeids=nodes,
        nodes_featureids=list(trees.feature),
        nodes_values=[0.0 if end else float(n) for end, n in zip(leaf, trees.number, strict=True)],
        nodes_modes=["LEAF" if end else "BRANCH_LEQ" for end in leaf],
        nodes_truenodeids=[0 if leaf[i] else trees.left[i] - first[i] for i in range(count)],
        nodes_falsenodeids=[0 if leaf[i] else trees.right[i] - first[i] for i in range(count)],
        target_treeids=[tree[i] for i in range(count) if leaf[i]],
        target_nodeids=[nodes[i] for i in range(count) if leaf[i]],
        target_ids=[0] * sum(leaf),
        target_weights=[float(trees.number[i]) for i in range(count) if leaf[i]],
    )


def _column_shape(graph: Any, raw: str) -> str:
    rows = graph.add("Shape", raw, start=0, end=1)
    return graph.add("Concat", rows, graph.constant([1], np.int64), axis=0)


def random_columns(schema: Schema, count: int, draw: np.random.Generator) -> dict[str, np.ndarray]:
    """Columns to compare the graph with the network: numbers as in training, any level."""
    columns: dict[str, np.ndarray] = {}
    for column in schema.inputs:
        if column.levels is None:
            columns[column.name] = draw.normal(column.mean, column.spread, count)
        else:
            levels = np.array([*column.levels, UNKNOWN], object)
            columns[column.name] = levels[draw.integers(0, len(levels), count)]
    return columns
