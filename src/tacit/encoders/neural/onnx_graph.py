"""An encoder as an ONNX graph of MatMul, Add and an activation, with the clip at its end.

The graph holds no noise: ONNX has no randomness that may be trusted. What it gives is private
until a mechanism has clipped it once more and added noise, as ``encode.py`` does.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.encoders.networks import Layers
from tacit.errors import InvalidInput
from tacit.privacy.mechanisms.local import LocalMechanism

if TYPE_CHECKING:
    from onnx import ModelProto

OPSET, IR_VERSION = 18, 10
_OPERATORS = {"sigmoid": "Sigmoid", "relu": "Relu", "tanh": "Tanh"}
_NOTE = "the latent is private until the mechanism has clipped it and added noise"


class _Graph:
    """Nodes and constants in the order in which they are added."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def node(self, operator: str, output: str, *inputs: Any) -> str:
        """The name of the output; an input that is no name is a constant."""
        from onnx import helper, numpy_helper

        names = [each if isinstance(each, str) else f"{output}.constant" for each in inputs]
        self.constants += [
            numpy_helper.from_array(np.ascontiguousarray(each), name)
            for each, name in zip(inputs, names, strict=True)
            if not isinstance(each, str)
        ]
        self.nodes.append(helper.make_node(operator, names, [output]))
        return output


def onnx_model(layers: Layers, mechanism: LocalMechanism) -> ModelProto:
    """x (n, d) → latent (n, Z) inside the ball of the mechanism, in double precision."""
    from onnx import TensorProto, checker, helper

    graph, value = _Graph(), "x"
    for i, layer in enumerate(layers):  # a(x Wᵀ + b)
        value = graph.node("MatMul", f"product{i}", value, layer.weight.T)
        value = graph.node("Add", f"sum{i}", value, layer.bias)
        if layer.activation != "identity":
            value = graph.node(_OPERATORS[layer.activation], f"output{i}", value)
    norm = graph.node("ReduceL2", "norm", value, np.array([1], dtype=np.int64))
    relative = graph.node("Div", "relative", norm, np.array([mechanism.radius]))
    factor = graph.node("Max", "factor", relative, np.array([1.0]))
    graph.node("Div", "latent", value, factor)  # h / max(1, ‖h‖/r)
    ends = [
        helper.make_tensor_value_info(end, TensorProto.DOUBLE, ["n", width])
        for end, width in (("x", layers[0].weight.shape[1]), ("latent", len(layers[-1].bias)))
    ]
    model = helper.make_model(
        helper.make_graph(graph.nodes, "encoder", ends[:1], ends[1:], graph.constants),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    numbers = json.dumps(mechanism.on_device())
    helper.set_model_props(model, {"mechanism": numbers, "note": _NOTE})
    checker.check_model(model, full_check=True)
    return model


def write_onnx(file: Path, layers: Layers, mechanism: LocalMechanism) -> None:
    """The graph as a file; needs the package onnx."""
    try:
        import onnx
    except ModuleNotFoundError:
        raise InvalidInput(
            "encoder.onnx needs the package onnx: pip install tacit[neural], or export(onnx=False)"
        ) from None
    onnx.save(onnx_model(layers, mechanism), str(file))
