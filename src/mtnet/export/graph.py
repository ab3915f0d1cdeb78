"""A builder of ONNX graphs."""

from typing import Any

import numpy as np
from onnx import helper, numpy_helper

from mtnet.version import __version__

OPSETS = {"": 17, "ai.onnx.ml": 3}
IR_VERSION = 8


class Graph:
    """Nodes, constants, inputs and outputs of a graph that is being written."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []

    def input(self, name: str, kind: Any, shape: list[Any]) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def output(self, name: str, kind: Any, shape: list[Any]) -> str:
        taken = {value.name for value in (*self.inputs, *self.outputs)}
        while name in taken:
            name += "_"
        self.outputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def constant(self, values: Any, dtype: Any = np.float32) -> str:
        name = f"mtnet/constant{len(self.constants)}"
        tensor = numpy_helper.from_array(np.asarray(values, dtype), name)
        self.constants.append(tensor)
        return name

    def add(self, kind: str, *inputs: str, named: str | None = None, **attributes: Any) -> str:
        """One more node; returns the name of its output."""
        name = named or f"mtnet/value{len(self.nodes)}"
        domain = "ai.onnx.ml" if kind in ("OneHotEncoder", "TreeEnsembleRegressor") else ""
        self.nodes.append(helper.make_node(kind, list(inputs), [name], domain=domain, **attributes))
        return name

    def model(self) -> Any:
        """The finished graph as an ONNX model."""
        proto = helper.make_graph(self.nodes, "mtnet", self.inputs, self.outputs, self.constants)
        opsets = [helper.make_opsetid(domain, version) for domain, version in OPSETS.items()]
        return helper.make_model(
            proto,
            opset_imports=opsets,
            ir_version=IR_VERSION,
            producer_name="mtnet",
            producer_version=__version__,
        )
