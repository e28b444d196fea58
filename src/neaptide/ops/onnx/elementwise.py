"""Operators that work element by element."""

from __future__ import annotations

from typing import Final

from neaptide.ir.registry import Trait
from neaptide.ops.formulas import per_input, per_output
from neaptide.ops.onnx.table import meaning

# A transcendental function costs about ten operations.
_FUNCTION: Final = per_output(10)

ROWS: Final = (
    *meaning(Trait.ELEMENTWISE, flops=per_output(1))("""
        Abs^:6,13 Neg^:6,13 Ceil^:6,13 Floor^:6,13 Round^:11,22 Sign^:9,13 Reciprocal^:6,13 Relu^:6,13,14
        Not^:1 BitwiseNot^:18 Clip^:6,11,12,13 LeakyRelu^:6,16 ThresholdedRelu^:10,22 HardSigmoid^:6,22
        HardSwish^:14,22 Shrink^:9 Softsign^:1,22
    """),
    *meaning(Trait.ELEMENTWISE, flops=per_output(1))("""
        Add^^:7,13,14 Sub^^:7,13,14 Mul^^:7,13,14 Div^^:7,13,14 PRelu^^:7,9,16 Mod^^:10,13,28
        And^^:7 Or^^:7 Xor^^:7 BitwiseAnd^^:18 BitwiseOr^^:18 BitwiseXor^^:18 BitShift^^:11,28
        Equal^^:7,11,13,19 Greater^^:7,9,13 Less^^:7,9,13 GreaterOrEqual^^:12,16 LessOrEqual^^:12,16
        Where^^^:9,16 Sum*:6,8,13 Mean*:6,8,13 Max*:6,8,12,13 Min*:6,8,12,13
    """),
    *meaning(Trait.ELEMENTWISE, flops=_FUNCTION)("""
        Sqrt^:6,13 Exp^:6,13 Log^:6,13 Sin^:7,22 Cos^:7,22 Tan^:7,22 Asin^:7,22 Acos^:7,22 Atan^:7,22
        Sinh^:9,22 Cosh^:9,22 Tanh^:6,13 Asinh^:9,22 Acosh^:9,22 Atanh^:9,22 Erf^:9,13 Sigmoid^:6,13
        Softplus^:1,22 Elu^:6,22 Selu^:6,22 Celu^:12,28 Mish^:18,22 Gelu^:20 Swish^:24 Pow^^:7,12,13,15
    """),
    *meaning(Trait.ELEMENTWISE, flops=per_output(1))("IsNaN^:9,13,20 IsInf^:10,20"),
    # A cast may sink through arithmetic, as a copy does.
    *meaning(Trait.COPY, Trait.ELEMENTWISE)("Cast^:6,9,13,19,21,23,24,25,28"),
    *meaning(Trait.COPY, Trait.ELEMENTWISE, shape_only=(1,))("CastLike^:15,19,21,23,24,25"),
    *meaning(Trait.ELEMENTWISE, flops=per_input(2))("""
        QuantizeLinear:10,13,19,21,23,24,25,28 DequantizeLinear:10,13,19,21,23,24,25,28
    """),
    *meaning(Trait.ELEMENTWISE, flops=per_output(10), domain="com.microsoft")("""
        FastGelu^:1 Gelu^:1 BiasGelu^:1 QuickGelu^:1
    """),
    *meaning(Trait.ELEMENTWISE, flops=per_output(8), domain="com.microsoft")("""
        QLinearAdd^:1 QLinearMul^:1 QLinearLeakyRelu^:1 QLinearSigmoid^:1
    """),
    # In inference it scales and shifts every channel by numbers that are known before.
    *meaning(Trait.NORMALISATION, flops=per_output(2))("BatchNormalization^:7,9,14,15"),
)
