"""What the operators of TensorFlow Lite mean: `tflite.CONV_2D.3` is the operator of that name in version 3.

Versions add types and options, never another meaning, so that one row stands for all of them. `workspace` is the scratch
that the reference kernels of TensorFlow Lite Micro request when they are prepared; kernels of vendors request more, which no
file tells.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from neaptide.ir.registry import Call, OpRegistry, OpSpec, SizeRule, Trait
from neaptide.ir.values import DTYPE_BYTES
from neaptide.symbolic.size_expr import SizeExpr

ALIGNMENT: Final = 16
"""Of every buffer in the arena of TensorFlow Lite Micro, scratch included."""

_VIEWS: Final = "RESHAPE SQUEEZE EXPAND_DIMS"
_BY_TRAIT: Final[Mapping[Trait, str]] = {
    Trait.ELEMENTWISE: """
        ADD SUB MUL DIV FLOOR CEIL ROUND ABS NEG SIGN SQUARE SQRT RSQRT EXP LOG SIN COS POW TANH LOGISTIC RELU RELU6
        RELU_N1_TO_1 RELU_0_TO_1 ELU GELU LEAKY_RELU PRELU HARD_SWISH MAXIMUM MINIMUM SQUARED_DIFFERENCE FLOOR_DIV
        FLOOR_MOD LESS LESS_EQUAL GREATER GREATER_EQUAL EQUAL NOT_EQUAL LOGICAL_AND LOGICAL_OR LOGICAL_NOT SELECT
        SELECT_V2 CAST QUANTIZE DEQUANTIZE FAKE_QUANT ADD_N ATAN2 BITWISE_XOR RIGHT_SHIFT
    """,
    Trait.CONVOLUTION: "CONV_2D DEPTHWISE_CONV_2D TRANSPOSE_CONV CONV_3D CONV_3D_TRANSPOSE",
    Trait.CONTRACTION: "FULLY_CONNECTED BATCH_MATMUL",
    Trait.POOLING: "AVERAGE_POOL_2D MAX_POOL_2D L2_POOL_2D",
    Trait.REDUCTION: "MEAN SUM REDUCE_PROD REDUCE_MAX REDUCE_MIN REDUCE_ANY REDUCE_ALL ARG_MAX ARG_MIN",
    Trait.NORMALISATION: "SOFTMAX LOG_SOFTMAX L2_NORMALIZATION LOCAL_RESPONSE_NORMALIZATION",
    Trait.RECURRENT: """
        LSTM RNN SVDF UNIDIRECTIONAL_SEQUENCE_LSTM UNIDIRECTIONAL_SEQUENCE_RNN BIDIRECTIONAL_SEQUENCE_LSTM
        BIDIRECTIONAL_SEQUENCE_RNN
    """,
    Trait.GATHER: "GATHER GATHER_ND EMBEDDING_LOOKUP",
    Trait.COPY: """
        CONCATENATION PACK UNPACK SPLIT SPLIT_V SLICE STRIDED_SLICE PAD PADV2 MIRROR_PAD TRANSPOSE TILE BROADCAST_TO
        REVERSE_V2 REVERSE_SEQUENCE DEPTH_TO_SPACE SPACE_TO_DEPTH BATCH_TO_SPACE_ND SPACE_TO_BATCH_ND RESIZE_BILINEAR
        RESIZE_NEAREST_NEIGHBOR CUMSUM ONE_HOT SCATTER_ND DYNAMIC_UPDATE_SLICE
    """,
    Trait.FACTORY: "FILL RANGE ZEROS_LIKE SHAPE RANK BROADCAST_ARGS",
    Trait.VIEW: _VIEWS,
}

VIEWS: Final = frozenset(_VIEWS.split())
"""Whose result may lie exactly on the operand: the kernels copy nothing then, or every byte onto itself."""

_ON_OPERANDS: Final[Mapping[str, tuple[int, ...]]] = {
    **dict.fromkeys(("ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM"), (0, 1)),
    **dict.fromkeys(("RELU", "RELU6", "LOGISTIC", "TANH", "HARD_SWISH", "LEAKY_RELU", "PRELU"), (0,)),
}
"""Operands that the result may lie on: the reference kernels read an element, write it, and never read it again. Kernels of
vendors may read the last elements twice, where their number is no multiple of what one instruction takes."""

_RANDOM: Final = frozenset({"RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL", "MULTINOMIAL"})
_ORDERED: Final = frozenset({
    *("CUSTOM", "CALL", "CALL_ONCE", "IF", "WHILE", "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE"),
    *("HASHTABLE", "HASHTABLE_FIND", "HASHTABLE_IMPORT", "HASHTABLE_SIZE"),
})  # fmt: skip
"""Operators with state outside of their tensors, or of which nothing is known: their order among each other is kept."""


def _aligned(size: SizeExpr) -> SizeExpr:
    return SizeExpr.const(-(-size.constant_value() // ALIGNMENT) * ALIGNMENT)


def _is_whole_number(call: Call) -> bool:
    """Whether the first operand has quantized elements."""
    given = call.value(0)
    return given is not None and given.dtype in {"int8", "uint8", "int16"}


def _accumulators(call: Call) -> SizeExpr:
    """`MEAN` and `SUM` of quantized operands have a 32-bit sum for each element of the result, beside an index and the axes."""
    sums = _aligned(call.output().numel * 4) if _is_whole_number(call) else SizeExpr.const(0)
    return sums + _axes(call)


def _transposed(call: Call) -> SizeExpr:
    """`TRANSPOSE_CONV` adds up in 32 bits for int8, in 64 bits for int16; its third operand is the image."""
    image = call.value(2)
    width = 0 if image is None else {"int8": 4, "int16": 8}.get(image.dtype, 0)
    return _aligned(call.output().numel * width)


def _axes(call: Call) -> SizeExpr:
    """Reductions keep an index into the operand and the axes, 32 bits each."""
    given, axes = call.value(0), call.value(1)
    found = SizeExpr.const(0)
    if given is not None and axes is not None:
        found = _aligned(SizeExpr.const(4 * len(given.shape))) + _aligned(axes.numel * 4)
    return found


def _filters(call: Call) -> SizeExpr:
    """`SVDF` keeps 32 bits for each filter, and for each output of quantized ones; the second operand has the filters."""
    given, weights = call.value(0), call.value(1)
    if given is None or weights is None or not given.shape or not weights.shape:
        return SizeExpr.const(0)
    found = _aligned(given.shape[0] * weights.shape[0] * 4)
    return found + _aligned(call.output().numel * 4) if given.dtype == "int8" else found


def _gates(call: Call) -> SizeExpr:
    """`UNIDIRECTIONAL_SEQUENCE_LSTM` keeps four gates as large as the cell state, input 19, in its type."""
    cell = call.value(19)
    return SizeExpr.const(0) if cell is None else _aligned(cell.numel * DTYPE_BYTES[cell.dtype]) * 4


_SCRATCH: Final[Mapping[str, SizeRule]] = {
    "TRANSPOSE_CONV": _transposed,
    "MEAN": _accumulators,
    "SUM": _accumulators,
    "REDUCE_MAX": _axes,
    "REDUCE_MIN": _axes,
    "SVDF": _filters,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _gates,
}


def _rows() -> dict[str, OpSpec]:
    rows = {
        name: OpSpec(name, frozenset({trait})) for trait, names in _BY_TRAIT.items() for name in names.split()
    }
    rows |= {name: OpSpec(name, rng=True) for name in _RANDOM}
    rows |= {name: OpSpec(name, host=True) for name in _ORDERED}
    rows |= {name: replace(rows[name], workspace=rule) for name, rule in _SCRATCH.items()}
    return rows | {name: replace(rows[name], in_place=on_top) for name, on_top in _ON_OPERANDS.items()}


_ROWS: Final = _rows()


def tflite_row(name: str) -> OpSpec | None:
    """The row of an operator, by its name without domain and version; None of one that has none."""
    return _ROWS.get(name)


def tflite_registry(ops: Iterable[str]) -> OpRegistry:
    """Rows of operations such as `tflite.CONV_2D.3`, those that have one."""
    named = {op: tflite_row(op.split(".")[1]) for op in dict.fromkeys(ops) if op.startswith("tflite.")}
    return OpRegistry(replace(row, name=op) for op, row in named.items() if row is not None)
