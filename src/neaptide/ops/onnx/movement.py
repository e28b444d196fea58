"""Operators that move elements or make them: views, joins, cuts, gathers, constants, random numbers; and subgraphs."""

from __future__ import annotations

from typing import Final

from neaptide.ir.registry import Call, Trait, no_bytes
from neaptide.ops.byte_sizes import gather_traffic, output_traffic
from neaptide.ops.formulas import per_input, per_output
from neaptide.ops.onnx.table import meaning
from neaptide.symbolic.size_expr import SizeExpr

BODY_BYTES: Final = "neaptide_body_bytes"
"""The keyword argument of a node with subgraphs that holds the most bytes that they have alive, in file order."""


def _body_bytes(call: Call) -> SizeExpr:
    nbytes = call.node.kwarg(BODY_BYTES, 0)
    return (
        nbytes if isinstance(nbytes, SizeExpr) else SizeExpr.const(nbytes if isinstance(nbytes, int) else 0)
    )


ROWS: Final = (
    # Their first result has the bytes of the first input. Of a dropout this holds in inference, as files for it have it.
    *meaning(Trait.VIEW, bytes_moved=no_bytes)("""
        Reshape:5,13,14,19,21,23,24,25 Squeeze:1,11,13,21,23,24,25 Unsqueeze:1,11,13,21,23,24,25
        Flatten:1,9,11,13,21,23,24,25 Identity:1,13,14,16,19,21,23,24,25 Dropout:7,10,12,13,22
    """),
    *meaning(Trait.COPY)("""
        Concat:4,11,13 Split:2,11,13,18 Slice:1,10,11,13 Transpose:1,13,21,23,24,25
        Pad:2,11,13,18,19,21,23,24,25 Expand:8,13 Tile:6,13 DepthToSpace:1,11,13,28 SpaceToDepth:1,13,28
        ReverseSequence:10,28 Compress:9,11,28 CenterCropPad:18 BitCast:26 Trilu^:14
    """),
    *meaning(Trait.COPY, flops=per_output(1))("Col2Im:18"),
    *meaning(Trait.COPY, flops=per_output(2), domain="com.microsoft")("QLinearConcat:1"),
    *meaning(flops=per_output(4))("Resize:10,11,13,18,19 Upsample:7,9 GridSample:16,20,22 AffineGrid:20"),
    *meaning(Trait.GATHER, bytes_moved=gather_traffic)("""
        Gather:1,11,13 GatherElements:11,13 GatherND:11,12,13
    """),
    # A copy of the first input in which some elements are replaced or added to.
    *meaning(flops=per_input(1))("""
        ScatterElements^:11,13,16,18 ScatterND^:11,13,16,18 Scatter^:9 TensorScatter^:24
    """),
    *meaning(flops=per_output(1))("OneHot:9,11,28 NonZero:9,13 NonMaxSuppression:10,11"),
    *meaning(Trait.FACTORY, shape_only=(0,), bytes_moved=output_traffic)("""
        Shape:1,13,15,19,21,23,24,25 Size:1,13,19,21,23,24,25 EyeLike:9,22
    """),
    *meaning(Trait.FACTORY, bytes_moved=output_traffic)("""
        Constant:1,9,11,12,13,19,21,23,24,25 ConstantOfShape:9,20,21,23,24,25 Range:11,27 HannWindow:17 HammingWindow:17 BlackmanWindow:17
    """),
    *meaning(Trait.FACTORY, rng=True, flops=per_output(10), bytes_moved=output_traffic)("""
        RandomNormal:1,22 RandomUniform:1,22
    """),
    *meaning(Trait.FACTORY, rng=True, shape_only=(0,), flops=per_output(10), bytes_moved=output_traffic)("""
        RandomNormalLike:1,22 RandomUniformLike:1,22
    """),
    *meaning(rng=True, flops=per_output(10))("Bernoulli:15,22 Multinomial:7,22"),
    *meaning(workspace=_body_bytes)("""
        If:1,11,13,16,19,21,23,24,25 Loop:1,11,13,16,19,21,23,24,25 Scan:8,9,11,16,19,21,23,24,25
    """),
)
