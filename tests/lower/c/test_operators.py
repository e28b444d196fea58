"""Every operator of the C target computes what ONNX Runtime computes, in arenas whose dead bytes cannot be touched."""

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from lower.c import c_programs
from neaptide.lower.c.of_model import write_c
from neaptide.lower.c.operators.rows import OPERATORS
from neaptide.lower.c.write import save
from support import onnx_cases

_TYPES = {
    "f": TensorProto.FLOAT,
    "l": TensorProto.INT64,
    "i": TensorProto.INT32,
    "b": TensorProto.BOOL,
    "B": TensorProto.UINT8,
    "h": TensorProto.INT8,
    "d": TensorProto.DOUBLE,
}


def F(*dims: int) -> tuple[str, tuple[int, ...]]:
    return "f", dims


def I(*dims: int) -> tuple[str, tuple[int, ...]]:  # noqa: E743
    return "l", dims


def Q(*dims: int) -> tuple[str, tuple[int, ...]]:
    return "B", dims


def B(*dims: int) -> tuple[str, tuple[int, ...]]:
    return "b", dims


def W(*dims: int) -> np.ndarray[Any, Any]:
    count = int(np.prod(dims))
    return (np.sin(np.arange(count) * 1.7 + 0.3).reshape(dims)).astype(np.float32)


def w8(*dims: int) -> np.ndarray[Any, Any]:
    return (W(*dims) * 100).astype(np.int8)


def i64(*numbers: int) -> np.ndarray[Any, Any]:
    return np.array(numbers, np.int64)


def f32(number: float) -> np.ndarray[Any, Any]:
    return np.array(number, np.float32)


def u8(number: int) -> np.ndarray[Any, Any]:
    return np.array(number, np.uint8)


def one(
    op: str, *operands: Any, out: str = "f", outs: int = 1, dims: Any = None, **attributes: Any
) -> tuple[Any, ...]:
    """A call: arrays are weights; `dims` is the shape of the result where no schema says it."""
    return op, operands, out, outs, dims, attributes


_UNARY = [
    "Abs",
    "Neg",
    "Relu",
    "Sigmoid",
    "Tanh",
    "Exp",
    "Softplus",
    "Softsign",
    "HardSwish",
    "Floor",
    "Ceil",
    "Round",
    "Erf",
    "Sign",
    "Sin",
    "Cos",
    "Elu",
    "Selu",
    "Celu",
    "LeakyRelu",
    "HardSigmoid",
    "ThresholdedRelu",
    "Mish",
    "Identity",
    "Reciprocal",
    "Atan",
    "Sinh",
    "Asinh",
]
_EMPTY = np.zeros(0, np.float32)
ELEMENTWISE = [
    *(one(op, F(2, 3, 4)) for op in _UNARY),
    one("Sqrt", F(2, 3)),
    one("Add", F(2, 3, 4), F(3, 1)),
    one("Sub", F(4), F(2, 3, 4)),
    one("Mul", F(2, 3, 4), F(1)),
    one("Div", F(2, 3, 4), W(2, 1, 4)),
    one("Div", I(5), i64(3, 2, 1, -2, 4), out="l"),
    one("Mod", I(5), i64(3, -2, 1, -3, 4), out="l"),
    one("Mod", F(3), W(3), fmod=1),
    *(one(op, F(2, 3), F(2, 3), F(3)) for op in ("Sum", "Mean", "Max", "Min")),
    one("Sum", F(2, 3)),
    *(one("Pow", F(2, 3), f32(number)) for number in (2, 3, 1)),
    one("Pow", F(2, 3), F(2, 3)),
    one("Clip", F(2, 3), f32(-0.5), f32(0.5)),
    one("Clip", F(2, 3), "", f32(0.5)),
    one("PRelu", F(1, 3, 4, 4), W(3, 1, 1)),
    *(one(op, F(2, 3), F(3), out="b") for op in ("Greater", "Less", "GreaterOrEqual", "LessOrEqual")),
    one("Equal", I(4), I(4), out="b"),
    *(one(op, B(4), B(4), out="b") for op in ("And", "Or", "Xor")),
    one("Not", B(4), out="b"),
    one("IsNaN", F(4), out="b"),
    one("IsInf", F(4), out="b"),
    one("Where", B(2, 3), F(2, 3), F(3)),
    one("Cast", F(2, 3), out="l", to=TensorProto.INT64),
    one("Cast", F(2, 3), out="b", to=TensorProto.BOOL),
    one("Cast", B(4), to=TensorProto.FLOAT),
    one("Cast", F(4), out="d", to=TensorProto.DOUBLE),
    one("Gelu", F(2, 3)),
    one("Gelu", F(2, 3), approximate="tanh"),
]
MOVEMENT = [
    one("Transpose", F(2, 3, 4), perm=[2, 0, 1]),
    one("Transpose", F(2, 3, 4)),
    one("Slice", F(4, 6), i64(1, 4), i64(3, 0), i64(0, 1), i64(1, -1)),
    one("Slice", F(5, 6), i64(-2), i64(99)),
    one("Split", F(2, 7), i64(3, 4), outs=2, axis=1),
    one("Split", F(7, 2), outs=3, num_outputs=3),
    one("Pad", F(2, 3, 4), i64(1, 0, 2, 0, 1, 0), f32(0.5)),
    one("Pad", F(4, 5), i64(-1, 0, 0, -2)),
    one("Pad", F(4, 5), i64(1, 2), "", i64(-1)),
    *(one("Pad", F(2, 3, 4), i64(0, 1, 2, 0, 1, 1), mode=mode) for mode in ("reflect", "edge")),
    one("Expand", F(3, 1), i64(2, 3, 4)),
    one("Tile", F(2, 3), i64(2, 3)),
    *(one("DepthToSpace", F(1, 8, 2, 3), blocksize=2, mode=mode) for mode in ("DCR", "CRD")),
    one("SpaceToDepth", F(1, 2, 4, 6), blocksize=2),
    one("Concat", F(2, 3), F(2, 4), F(2, 1), axis=1),
    one("Concat", F(2, 3), W(1, 3), axis=0),
    one("Reshape", F(2, 6), i64(3, -1)),
    one("Gather", F(4, 3), i64(1, -1, 0), axis=0),
    one("Gather", F(2, 4, 3), np.array([[1, 2], [0, 3]], np.int32), axis=1),
    one("GatherElements", F(3, 3), np.array([[1, 2, -1], [0, 0, 1]], np.int64), axis=1),
    one("GatherND", F(4, 3, 2), np.array([[1, 2], [3, 0]], np.int64)),
    *(
        one("ScatterElements", F(3, 4), np.array([[1, 1, -1]], np.int64), F(1, 3), axis=1, reduction=how)
        for how in ("add", "mul", "max", "min")
    ),
    one("ScatterElements", F(3, 4), np.array([[1, 0, 3]], np.int64), F(1, 3), axis=1),
    one("ScatterND", F(4, 3), np.array([[1], [1], [3]], np.int64), F(3, 3), reduction="add"),
    one("OneHot", I(4), i64(5), W(2), axis=0),
    one("TopK", F(3, 6), i64(4), outs=2, axis=1),
    one("TopK", F(5, 2), i64(2), outs=2, axis=0, largest=0),
    one("ArgMax", F(3, 4), out="l", axis=1),
    one("ArgMin", F(3, 4, 2), out="l", axis=1, keepdims=0),
    one("CumSum", F(3, 4), i64(1)[0], exclusive=1, reverse=1),
    one(
        "Resize",
        F(1, 2, 4, 5),
        _EMPTY,
        np.array([1, 1, 2, 2], np.float32),
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    ),
    one("Resize", F(1, 2, 4, 5), _EMPTY, _EMPTY, i64(1, 2, 7, 9), mode="nearest"),
    one("Resize", F(1, 2, 4, 5), _EMPTY, np.array([1, 1, 2, 1.6], np.float32), mode="linear"),
    one(
        "Resize",
        F(1, 2, 4, 5),
        _EMPTY,
        _EMPTY,
        i64(1, 2, 7, 9),
        mode="linear",
        coordinate_transformation_mode="align_corners",
    ),
]
LAYERS = [
    one("Conv", F(1, 4, 9, 8), W(6, 2, 3, 3), W(6), strides=[2, 1], dilations=[1, 2], pads=[1, 2, 0, 1], group=2),
    one("Conv", F(2, 4, 9), W(6, 4, 3), auto_pad="SAME_UPPER", strides=[2]),
    one("Conv", F(1, 4, 6, 5), W(4, 1, 3, 3), group=4, auto_pad="SAME_LOWER"),
    one("ConvTranspose", F(1, 4, 5, 4), W(4, 3, 3, 2), W(6), strides=[2, 2], pads=[1, 0, 0, 1],
        output_padding=[1, 0], group=2),
    one("ConvTranspose", F(1, 4, 5, 4), W(4, 3, 3, 2), dilations=[2, 1]),
    one("MaxPool", F(1, 2, 7, 7), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    one("MaxPool", F(2, 2, 8, 7), outs=2, kernel_shape=[3, 2], strides=[2, 2], ceil_mode=1),
    one("MaxPool", F(1, 2, 9), kernel_shape=[2], dilations=[2]),
    one("AveragePool", F(1, 2, 7, 7), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    one("AveragePool", F(1, 2, 8, 8), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1],
        count_include_pad=1, ceil_mode=1),
    one("GlobalAveragePool", F(2, 3, 4, 5)),
    one("GlobalMaxPool", F(2, 3, 4, 5)),
    one("Gemm", F(3, 4), W(5, 4), W(5), transB=1, alpha=0.5, beta=2.0),
    one("Gemm", F(4, 3), F(4, 5), transA=1),
    one("MatMul", F(2, 1, 3, 4), F(5, 4, 2)),
    one("MatMul", F(4), F(2, 4, 3)),
    one("MatMul", F(2, 3, 4), F(4)),
    one("ReduceMean", F(2, 3, 4), i64(0, 2), keepdims=0),
    one("ReduceSum", F(2, 3, 4), i64(1)),
    one("ReduceMax", F(2, 3, 4), i64(-1), keepdims=0),
    one("ReduceMin", F(2, 3)),
    one("ReduceSum", I(2, 3), out="l"),
    one("ReduceMax", I(2, 3), out="l"),
    *(one(f"Reduce{kind}", F(2, 3, 4), i64(-1)) for kind in ("L1", "L2", "LogSumExp", "Prod", "SumSquare")),
    one("ReduceLogSum", F(2, 3), i64(1)),
    one("Softmax", F(2, 3, 4), axis=1),
    one("LogSoftmax", F(2, 3, 4)),
    one("LayerNormalization", F(2, 3, 4), W(4), W(4), axis=-1),
    one("LayerNormalization", F(2, 3, 4), W(3, 4), axis=1),
    one("InstanceNormalization", F(2, 3, 4, 4), W(3), W(3)),
    one("BatchNormalization", F(2, 3, 4, 4), W(3), W(3), W(3), W(3) ** 2),
    one("BatchNormalization", F(2, 3), W(3), W(3), W(3), W(3) ** 2),
    one("LRN", F(1, 6, 3, 3), size=3),
]  # fmt: skip
QUANTIZED = [
    one("QuantizeLinear", F(2, 3, 4), f32(0.02), u8(120), out="B"),
    one("QuantizeLinear", F(2, 3, 4), np.array([0.02, 0.1, 0.05], np.float32), np.array([1, 0, -3], np.int8), out="h",
        axis=1),
    one("DequantizeLinear", Q(2, 3, 4), f32(0.02), u8(120)),
    one("DequantizeLinear", Q(2, 3), np.array([0.5, 0.25], np.float32), axis=0),
    one("QLinearConv", Q(1, 4, 6, 5), f32(0.05), u8(1), w8(6, 2, 3, 3), f32(0.01), np.int8(0)[()], f32(0.03), u8(120),
        np.arange(6, dtype=np.int32), out="B", group=2, pads=[1, 1, 0, 1], strides=[2, 1]),
    one("QLinearConv", Q(1, 4, 6, 5), f32(0.05), u8(1), w8(3, 4, 3, 3), np.array([0.01, 0.02, 0.03], np.float32),
        np.zeros(3, np.int8), f32(0.05), u8(120), out="B"),
    one("QLinearMatMul", Q(2, 3, 4), f32(0.05), u8(1), w8(4, 5), f32(0.02), np.int8(0)[()], f32(0.01), u8(100),
        out="B"),
    one("com.microsoft.QLinearAdd", Q(2, 3), f32(0.05), u8(1), Q(2, 3), f32(0.04), u8(2), f32(0.03), u8(5), out="B",
        dims=[2, 3]),
    one("com.microsoft.QLinearMul", Q(2, 3), f32(0.05), u8(1), Q(2, 3), f32(0.04), u8(2), f32(0.003), u8(5), out="B",
        dims=[2, 3]),
    one("com.microsoft.QGemm", Q(3, 4), f32(0.05), u8(1), w8(5, 4), f32(0.02), np.int8(0)[()],
        np.arange(5, dtype=np.int32), f32(0.02), u8(110), out="B", dims=[3, 5], transB=1),
    one("com.microsoft.QLinearGlobalAveragePool", Q(1, 3, 4, 5), f32(0.05), u8(1), f32(0.01), u8(5), out="B",
        dims=[1, 3, 1, 1]),
]  # fmt: skip
OLD = [
    one("Softmax", F(2, 3, 4), axis=1),
    one("Slice", F(4, 6), starts=[1, 0], ends=[3, -1], axes=[0, 1]),
    one("Pad", F(4, 5), pads=[1, 0, 0, 2], value=0.5),
    one("Clip", F(4, 5), min=-0.5, max=0.25),
    one("Upsample", F(1, 2, 3, 3), np.array([1, 1, 2, 2], np.float32), mode="nearest"),
    one("Split", F(2, 7), outs=2, axis=1, split=[3, 4]),
    one("ReduceMean", F(2, 3, 4), axes=[1]),
    one("Dropout", F(2, 3)),
    one("Flatten", F(2, 3, 2), axis=2),
    one("Squeeze", F(2, 1, 3), axes=[1]),
    one("Unsqueeze", F(2, 3), axes=[0]),
]
RECURRENT = [
    one("LSTM", F(5, 2, 3), W(1, 16, 3), W(1, 16, 4), outs=3, hidden_size=4),
    one("LSTM", F(5, 2, 3), W(2, 16, 3), W(2, 16, 4), W(2, 32), np.array([5, 3], np.int32), F(2, 2, 4), F(2, 2, 4),
        W(2, 12), outs=3, hidden_size=4, direction="bidirectional"),
    one("LSTM", F(5, 1, 3), F(1, 16, 3), F(1, 16, 4), W(1, 32), "", "", F(1, 1, 4), hidden_size=4, direction="reverse",
        activations=["Relu", "Tanh", "Sigmoid"]),
    one("GRU", F(5, 2, 3), W(2, 12, 3), W(2, 12, 4), W(2, 24), "", F(2, 2, 4), outs=2, hidden_size=4,
        direction="bidirectional"),
    one("GRU", F(5, 2, 3), W(1, 12, 3), W(1, 12, 4), W(1, 24), np.array([1, 4], np.int32), outs=2, hidden_size=4,
        linear_before_reset=1, direction="reverse"),
    one("RNN", F(5, 2, 3), W(2, 4, 3), W(2, 4, 4), W(2, 8), outs=2, hidden_size=4, direction="bidirectional",
        activations=["Relu", "Relu"]),
    one("RNN", F(1, 2, 3), W(1, 4, 3), W(1, 4, 4), hidden_size=4),
]  # fmt: skip
NEW = [one("GroupNormalization", F(2, 6, 4), W(6), W(6), num_groups=3)]


def _model(rows: list[tuple[Any, ...]], opset: int) -> onnx.ModelProto:
    """One model with all calls side by side, each with inputs and outputs of its own."""
    nodes, inputs, outputs, weights = [], [], [], []
    for number, (op, operands, out, outs, dims, attributes) in enumerate(rows):
        names = []
        for place, operand in enumerate(operands):
            name = f"x{number}_{place}"
            if isinstance(operand, str):
                name = operand
            elif isinstance(operand, tuple):
                inputs.append(helper.make_tensor_value_info(name, _TYPES[operand[0]], list(operand[1])))
            else:
                weights.append(numpy_helper.from_array(np.asarray(operand), name))
            names.append(name)
        made = [f"y{number}_{place}" for place in range(outs)]
        domain, _, name = op.rpartition(".")
        nodes.append(helper.make_node(name, names, made, domain=domain, **attributes))
        types = [_TYPES[out]] + [_TYPES["l"] if name in {"TopK", "MaxPool"} else _TYPES[out]] * (outs - 1)
        outputs += [helper.make_tensor_value_info(m, t, dims) for m, t in zip(made, types, strict=True)]
    graph = helper.make_graph(nodes, "all", inputs, outputs, weights)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


_FAMILIES = {
    "elementwise": (ELEMENTWISE, 20),
    "movement": (MOVEMENT, 20),
    "layers": (LAYERS, 20),
    "quantized": (QUANTIZED, 20),
    "recurrent": (RECURRENT, 20),
    "old": (OLD, 9),
}


@pytest.mark.parametrize("family", _FAMILIES)
def test_operators_compute_what_the_runtime_computes(family: str, tmp_path: Path) -> None:
    rows, opset = _FAMILIES[family]
    c_programs.compare(tmp_path, {"all": _model(rows, opset)})


def test_infinities_of_one_sign_are_told_apart(tmp_path: Path) -> None:
    text = """g (float[6] x, float[6] w) => (bool[6] a, bool[6] b, bool[6] c) {
      z = Sub(w, w) y = Div(x, z)
      a = IsInf<detect_positive = 0>(y) b = IsInf<detect_negative = 0>(y) c = IsInf(x) }"""
    c_programs.compare(tmp_path, {"all": onnx_cases.model_of(text)})


def test_operators_do_what_is_new_in_opset_28(tmp_path: Path) -> None:
    text = """g (float[1,2,4,6] x, float[1,2,4,1] w) => (float[1,8,2,3] y, float[1,8,2,3] z, float[1,2,4,6] m) {
      y = SpaceToDepth<blocksize = 2, mode = "CRD">(x) z = SpaceToDepth<blocksize = 2>(x) m = Mod(x, w) }"""
    made = onnx_cases.model_of(text, 28)
    made.ir_version = 13
    c_programs.compare(tmp_path, {"all": made})


def test_a_model_of_weights_alone_is_written_without_a_warning(tmp_path: Path) -> None:
    text = "g (float[2] w) => (float[2] y) { y = Relu(w) }"
    save(write_c(onnx_cases.graph_of(text), "net"), tmp_path, "net")
    flags = [*c_programs.WARNINGS, "-c", "net.c"]
    subprocess.run(["cc", *flags], cwd=tmp_path, check=True)


def test_every_operator_with_a_row_is_compared_with_the_runtime_or_has_a_reason() -> None:
    compared = {row[0].rpartition(".")[2] for rows, _ in _FAMILIES.values() for row in rows}
    same_expression = {"Tan", "Asin", "Acos", "Cosh", "Acosh", "Atanh", "Log"}
    newer = {
        "Swish",
        "GroupNormalization",
        "RMSNormalization",
    }  # the runtime, or shapes of its opset, are not there
    never_run = {"Shape", "ConstantOfShape"}  # folded where they are read
    assert set(OPERATORS) - compared == same_expression | newer | never_run
