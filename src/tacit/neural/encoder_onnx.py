"""An encoder as an ONNX graph of MatMul, Add and an activation, with the clip at its end.

The graph holds no noise: ONNX has no randomness that may be trusted. What it gives is private
until a mechanism has clipped it once more and added noise, as ``encode.py`` does.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.errors import InvalidInput
from tacit.neural.encoder_layers import Layers
from tacit.neural.encoder_noise import Clipping
from tacit.privacy.local.device import Layer, mechanism_numbers

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

    def constant(self, name: str, value: Any) -> str:
        from onnx import numpy_helper

        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def node(self, operator: str, inputs: list[str], output: str) -> str:
        from onnx import helper

        self.nodes.append(helper.make_node(operator, inputs, [output]))
        return output

    def layer(self, layer: Layer, source: str, name: str) -> str:
        """a(x Wᵀ + b)."""
        weight = self.constant(f"{name}.weight", layer.weight.T)
        product = self.node("MatMul", [source, weight], f"{name}.product")
        sums = self.node("Add", [product, self.constant(f"{name}.bias", layer.bias)], f"{name}.sum")
        if layer.activation == "identity":
            return sums
        return self.node(_OPERATORS[layer.activation], [sums], f"{name}.output")

    def clip(self, source: str, radius: float) -> str:
        """h / max(1, ‖h‖/r)."""
        axis = self.constant("axis", np.array([1], dtype=np.int64))
        norm = self.node("ReduceL2", [source, axis], "norm")
        relative = self.node("Div", [norm, self.constant("radius", np.array([radius]))], "relative")
        one = self.constant("one", np.array([1.0]))
        return self.node("Div", [source, self.node("Max", [relative, one], "factor")], "latent")


def onnx_model(layers: Layers, mechanism: Clipping) -> ModelProto:
    """x (n, d) → latent (n, Z) inside the ball of the mechanism, in double precision."""
    from onnx import TensorProto, checker, helper

    graph, name = _Graph(), "x"
    for i, layer in enumerate(layers):
        name = graph.layer(layer, name, f"layer{i}")
    graph.clip(name, mechanism.radius)
    inside, outside = layers[0].weight.shape[1], len(layers[-1].bias)
    ends = [
        helper.make_tensor_value_info(end, TensorProto.DOUBLE, ["n", width])
        for end, width in (("x", inside), ("latent", outside))
    ]
    model = helper.make_model(
        helper.make_graph(graph.nodes, "encoder", ends[:1], ends[1:], graph.constants),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    numbers = json.dumps(mechanism_numbers(mechanism))
    helper.set_model_props(model, {"mechanism": numbers, "note": _NOTE})
    checker.check_model(model, full_check=True)
    return model


def write_onnx(file: Path, layers: Layers, mechanism: Clipping) -> None:
    """The graph as a file; needs the package onnx."""
    try:
        import onnx
    except ModuleNotFoundError:
        raise InvalidInput(
            "encoder.onnx needs the package onnx: pip install tacit[neural], or export(onnx=False)"
        ) from None
    onnx.save(onnx_model(layers, mechanism), str(file))
