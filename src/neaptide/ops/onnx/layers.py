"""Operators that combine many elements: products, convolutions, pools, norms, reductions, recurrent layers."""

from __future__ import annotations

from typing import Final

from neaptide.ir.registry import Call, Trait
from neaptide.ops import formulas
from neaptide.ops.formulas import per_input, per_input_times_log, per_output, tensor
from neaptide.ops.onnx.table import meaning
from neaptide.symbolic.size_expr import SizeExpr


def _gemm(call: Call) -> SizeExpr:
    """`2 m n k`: the left side is (m, k), or (k, m) where it is transposed."""
    left = tensor(call, 0)
    depth = left.shape[0 if call.node.kwarg("transA", 0) else 1] if len(left.shape) == 2 else left.numel
    return call.output().numel * depth * 2


def _window(call: Call) -> SizeExpr:
    """One operation for each tap of each result."""
    return formulas.taps(call, call.node.kwarg("kernel_shape", ()))


def _attention(call: Call) -> SizeExpr:
    """Both products of attention: `4 q t d`, from query, key and value of (b, h, s, d) or (b, s, h d)."""
    query, key = tensor(call, 0), tensor(call, 1)
    return query.numel * key.shape[-2] * 4


ROWS: Final = (
    *meaning(Trait.CONTRACTION, flops=formulas.dot_products)(
        "MatMul:1,9,13 MatMulInteger:10 QLinearMatMul:10,21"
    ),
    *meaning(Trait.CONTRACTION, flops=_gemm)("Gemm:7,9,11,13"),
    # How long the dot products are is in an equation: the result alone is counted.
    *meaning(Trait.CONTRACTION, flops=per_output(2))("Einsum:12,28"),
    *meaning(Trait.CONVOLUTION, flops=formulas.convolution(None))(
        "Conv:1,11,22 ConvInteger:10 DeformConv:19,22"
    ),
    *meaning(Trait.CONVOLUTION, flops=formulas.convolution(None, weight=3))("QLinearConv:10"),
    *meaning(Trait.CONVOLUTION, flops=formulas.transposed_convolution)("ConvTranspose:1,11,22"),
    *meaning(Trait.ATTENTION, flops=_attention)("Attention:23,24,25"),
    *meaning(Trait.RECURRENT, flops=formulas.rnn_layer(1, (1, 2)))("LSTM:7,14,22 GRU:7,14,22 RNN:7,14,22"),
    *meaning(Trait.POOLING, flops=_window)("""
        MaxPool:1,8,10,11,12,22 AveragePool:7,10,11,19,22 LpPool:2,11,18,22
    """),
    *meaning(Trait.POOLING, Trait.REDUCTION, flops=per_input(1))("""
        GlobalAveragePool:1,22 GlobalMaxPool:1,22 GlobalLpPool:2,22
    """),
    *meaning(Trait.POOLING, flops=per_output(10))("RoiAlign:10,16,22 MaxRoiPool:1,22 MaxUnpool:9,11,22"),
    *meaning(Trait.REDUCTION, flops=per_input(1))("""
        ReduceSum:1,11,13 ReduceMean:1,11,13,18 ReduceMax:1,11,12,13,18,20 ReduceMin:1,11,12,13,18,20
        ReduceProd:1,11,13,18 ReduceL1:1,11,13,18 ArgMax:1,11,12,13 ArgMin:1,11,12,13
    """),
    *meaning(Trait.REDUCTION, flops=per_input(2))("ReduceL2:1,11,13,18 ReduceSumSquare:1,11,13,18"),
    *meaning(Trait.REDUCTION, flops=per_input(12))("""
        ReduceLogSum:1,11,13,18,28 ReduceLogSumExp:1,11,13,18,28
    """),
    *meaning(flops=per_input(1))("CumSum:11,14 CumProd:26"),
    *meaning(flops=per_input_times_log())("TopK:1,10,11,24 Unique:11,28"),
    *meaning(Trait.NORMALISATION, flops=per_input(13))("Softmax:1,11,13 LogSoftmax:1,11,13 Hardmax:1,11,13"),
    *meaning(Trait.NORMALISATION, flops=per_input(7))("""
        LayerNormalization:17 RMSNormalization:23 GroupNormalization:21 InstanceNormalization:6,22
        MeanVarianceNormalization:9,13 LpNormalization:1,22 LRN:1,13
    """),
    *meaning(Trait.LOSS, flops=per_input(13))("""
        SoftmaxCrossEntropyLoss:12,13 NegativeLogLikelihoodLoss:12,13,22
    """),
    *meaning(flops=per_input(4))("DynamicQuantizeLinear:11"),
    *meaning(flops=formulas.fft)("DFT:17,20 STFT:17"),
    *meaning(flops=formulas.cubic)("Det:11,22"),
    *meaning(Trait.CONVOLUTION, flops=formulas.convolution(None), domain="com.microsoft")("FusedConv:1"),
    *meaning(Trait.CONTRACTION, flops=formulas.dot_products, domain="com.microsoft")("FusedMatMul:1 QGemm:1"),
    *meaning(Trait.CONTRACTION, flops=_gemm, domain="com.microsoft")("FusedGemm:1"),
    *meaning(Trait.POOLING, flops=_window, domain="com.microsoft")("QLinearAveragePool:1"),
    *meaning(Trait.POOLING, Trait.REDUCTION, flops=per_input(1), domain="com.microsoft")("""
        QLinearGlobalAveragePool:1
    """),
    *meaning(Trait.NORMALISATION, flops=per_input(7), domain="com.microsoft")("""
        SkipLayerNormalization:1 QLinearSoftmax:1
    """),
)
