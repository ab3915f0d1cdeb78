"""A network as one ONNX graph, from the columns of a table or an image to the prediction.

Numbers are scaled, categories encoded, waves and trees added inside the graph. Before it is
returned, the graph is compared with the network on random inputs.
"""

from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto

from mtnet.errors import InputError
from mtnet.export.graph import Graph
from mtnet.export.network import ExportedNetwork, predictions
from mtnet.export.onnx_table import encode_rows, random_columns
from mtnet.plain.layers import Layer
from mtnet.userdata.schema import encode_all

TOLERANCE = 1e-5
"""Largest difference from the network: of probabilities, or of numbers in standard deviations."""
EXAMPLES = 64
"""Random inputs of the comparison."""


def checked_model(network: ExportedNetwork) -> Any:
    """The graph of a network; an InputError if its predictions differ."""
    model = onnx_model(network)
    onnx.checker.check_model(model)
    inputs, x = random_inputs(network)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    found = np.asarray(session.run(None, inputs)[0], np.float64)
    expected = predictions(network, x)
    spread = 1.0 if network.labels or network.schema is None else network.schema.target.spread
    error = float(np.max(np.abs(found - expected) / spread, initial=0.0))
    largest = TOLERANCE * (1 if network.labels else max(1.0, np.abs(expected / spread).max()))
    if not error <= largest:
        raise InputError(
            f"the ONNX graph differs from the network by {error:.2g}: it is not written; use --to "
            "json or --to safetensors, and please report this"
        )
    return model


def random_inputs(network: ExportedNetwork) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Inputs of the graph, and the same as inputs of the network."""
    draw = np.random.default_rng(0)
    if network.schema is None:
        shape = (EXAMPLES, *network.about["spec"]["inputs"])
        images = draw.uniform(size=shape).astype(np.float32)
        return {"images": images}, 1 - images if network.about["invert"] else images
    columns = random_columns(network.schema, EXAMPLES, draw)
    return {n: v[:, None] for n, v in columns.items()}, encode_all(
        network.schema, columns, "random inputs"
    )


def onnx_model(network: ExportedNetwork) -> Any:
    """The graph, not compared yet."""
    graph = Graph()
    if network.schema is None:
        shape = ["examples", *network.about["spec"]["inputs"]]
        x = graph.input("images", TensorProto.FLOAT, shape)
        x = graph.add("Sub", graph.constant(1), x) if network.about["invert"] else x
    else:
        x = encode_rows(graph, network.schema)
    x = add_layers(graph, network.layers, x)
    add_outputs(graph, network, x)
    return graph.model()


def add_layers(graph: Graph, layers: list[Layer], x: str) -> str:
    """The layers of the network."""
    pads = [0, 0, 0, 0]
    for layer in layers:
        arrays = {name: graph.constant(array) for name, array in layer.arrays.items()}
        match layer.type:
            case "Linear":
                x = graph.add("Gemm", x, arrays["weight"], arrays["bias"], transB=1)
            case "ZeroPad2d":
                left, right, top, bottom = layer.options["padding"]
                pads = [top, left, bottom, right]
            case "Conv2d":
                strides = [layer.options["stride"]] * 2
                x = graph.add(
                    "Conv", x, arrays["weight"], arrays["bias"], pads=pads, strides=strides
                )
            case "MaxPool2d":
                x = graph.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
            case "AdaptiveAvgPool2d":
                x = graph.add("GlobalAveragePool", x)
            case "Flatten":
                x = graph.add("Flatten", x)
            case "ReLU":
                x = graph.add("Relu", x)
            case "Attention":
                x = add_attention(graph, layer, x)
    return x


def add_attention(graph: Graph, layer: Layer, f: str) -> str:
    """log(softmax(scale * cosines) @ labels)."""
    axis = graph.constant([-1], np.int64)
    square = graph.add("ReduceSum", graph.add("Mul", f, f), axis, keepdims=1)
    length = graph.add("Sqrt", graph.add("Add", square, graph.constant(1e-12)))
    features = graph.constant(layer.options["scale"] * layer.arrays["features"].T)
    attention = graph.add("Softmax", graph.add("MatMul", graph.add("Div", f, length), features))
    labels = graph.constant(layer.arrays["labels"])
    return graph.add("Log", graph.add("MatMul", attention, labels))


def add_outputs(graph: Graph, network: ExportedNetwork, x: str) -> None:
    """Probabilities and labels, or numbers in their own unit."""
    name = "label" if network.schema is None else f"predicted {network.schema.target.name}"
    if not network.labels:
        assert network.schema is not None
        target = network.schema.target
        y = graph.add("Cast", x, to=TensorProto.DOUBLE)
        y = graph.add("Mul", y, graph.constant(target.spread, np.float64))
        to = graph.output(name, TensorProto.DOUBLE, ["examples", 1])
        graph.add("Add", y, graph.constant(target.mean, np.float64), named=to)
        return
    classes = len(network.labels)
    p = graph.output("probabilities", TensorProto.FLOAT, ["examples", classes])
    graph.add("Softmax", graph.add("Div", x, graph.constant(network.temperature)), named=p, axis=-1)
    best = graph.add("ArgMax", p, axis=1, keepdims=0)
    label = graph.output(name, TensorProto.STRING, ["examples"])
    graph.add("Gather", graph.constant(network.labels, object), best, named=label)
