"""One small call per derivative rule and form of its operator, with PyTorch's function for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

Sizes = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """A call: sizes become random numbers, arrays are constants of the model, None is an absent input.

    `low` and `high` bound the random numbers. The function of PyTorch takes what is not None.
    """

    op: str
    torch: Callable[..., torch.Tensor]
    inputs: tuple[Sizes | np.ndarray | None, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    low: float = -2.0
    high: float = 2.0
    opset: int = 20
    outputs: int = 1

    @property
    def has_reference(self) -> bool:
        """Whether the reference evaluator computes it in float64; it has no negative padding and few kinds of groups."""
        group, weight = self.attributes.get("group", 1), (*self.inputs, None)[1]
        if self.op in {"Conv", "ConvTranspose"} and group > 1:
            return self.op == "Conv" and group == weight[0]
        return self.op not in {"Erf", "Gelu", "Resize"} and not (self.op == "Pad" and weight.min() < 0)

    @property
    def name(self) -> str:
        given = (
            "-" if x is None else "x".join(map(str, x if isinstance(x, tuple) else x.shape))
            for x in self.inputs
        )
        return " ".join((self.op, *given, *(f"{k}={v}" for k, v in self.attributes.items()))).replace(
            " ", "_"
        )


def one(
    op: str,
    function: Callable[..., torch.Tensor],
    *inputs: Any,
    low: float = -2.0,
    high: float = 2.0,
    **attributes: Any,
) -> Case:
    return Case(op, function, inputs, attributes, low, high)


def ints(*numbers: int) -> np.ndarray:
    return np.asarray(numbers, dtype=np.int64)


def _unary() -> list[Case]:
    positive = {"Sqrt": torch.sqrt, "Log": torch.log, "Reciprocal": torch.reciprocal}
    inner = {"Asin": torch.asin, "Acos": torch.acos, "Tan": torch.tan}
    anywhere = {
        "Neg": torch.neg,
        "Exp": torch.exp,
        "Sin": torch.sin,
        "Cos": torch.cos,
        "Tanh": torch.tanh,
        "Sigmoid": torch.sigmoid,
        "Relu": F.relu,
        "Erf": torch.erf,
        "Softplus": F.softplus,
        "Abs": torch.abs,
        "Identity": lambda x: x * 1,
        "Atan": torch.atan,
        "Sinh": torch.sinh,
        "Cosh": torch.cosh,
        "Softsign": F.softsign,
        "Elu": F.elu,
        "Selu": F.selu,
        "Mish": F.mish,
        "HardSwish": F.hardswish,
    }
    return [
        *(one(op, f, (3, 4), low=0.5) for op, f in positive.items()),
        *(one(op, f, (3, 4), low=-0.8, high=0.8) for op, f in inner.items()),
        *(one(op, f, (3, 4), low=-4, high=4) for op, f in anywhere.items()),
        one("LeakyRelu", lambda x: F.leaky_relu(x, 0.2), (3, 4), alpha=0.2),
        one("LeakyRelu", lambda x: F.leaky_relu(x, -0.2), (3, 4), alpha=-0.2),
        one("ThresholdedRelu", lambda x: F.threshold(x, 0.5, 0.0), (3, 4), alpha=0.5),
        one("HardSigmoid", lambda x: (x / 6 + 0.5).clamp(0, 1), (3, 4), low=-5, high=5, alpha=1 / 6),
        one("Gelu", F.gelu, (3, 4)),
        one("Gelu", lambda x: F.gelu(x, approximate="tanh"), (3, 4), approximate="tanh"),
        Case("Swish", lambda x: x * torch.sigmoid(1.5 * x), ((3, 4),), {"alpha": 1.5}, opset=24),
        one("Clip", lambda x, *_: x.clamp(-1, 0.5), (3, 4), np.float32(-1), np.float32(0.5)),
        one("Clip", lambda x, _: x.clamp(max=0.5), (3, 4), None, np.float32(0.5)),
        one("Cast", lambda x: x * 1, (3, 4), to=1),
        one("CastLike", lambda x, _: x * 1, (3, 4), np.float32(0)),
        one("Dropout", lambda x: x * 1, (3, 4)),
    ]


def _binary() -> list[Case]:
    mask = np.asarray([[True], [False], [True]])
    return [
        one("Add", torch.add, (2, 3, 4), (3, 1)),
        one("Sub", torch.sub, (4,), (3, 4)),
        one("Mul", torch.mul, (3, 4), (1,)),
        one("Div", torch.div, (3, 4), (2, 3, 1), low=0.5),
        one("Pow", torch.pow, (3, 4), (4,), low=0.5),
        one("Pow", lambda x, _: x**2, (3, 4), np.float32(2)),
        one("Pow", lambda x, _: x**3, (3, 4), np.float32(3)),
        one("PRelu", lambda x, s: torch.where(x > 0, x, s * x), (3, 4), (3, 1)),
        one("Where", torch.where, mask, (3, 4), (1, 4)),
        one("Sum", lambda a, b, c: a + b + c, (3, 4), (4,), (3, 1)),
        one("Mean", lambda a, b: (a + b) / 2, (3, 4), (4,)),
        one("Max", lambda a, b, c: torch.maximum(torch.maximum(a, b), c), (3, 4), (4,), (3, 1)),
        one("Min", torch.minimum, (3, 4), (3, 4)),
    ]


def _reductions() -> list[Case]:
    return [
        one("ReduceSum", lambda x, _: x.sum(1), (3, 4, 2), ints(1), keepdims=0),
        one("ReduceSum", lambda x: x.sum(), (3, 4)),
        one("ReduceSum", lambda x: x * 1, (3, 4), noop_with_empty_axes=1),
        one("ReduceMean", lambda x, _: x.mean((0, 2), keepdim=True), (3, 4, 2), ints(0, -1)),
        one("ReduceMax", lambda x, _: x.amax(1), (3, 4), ints(1), keepdims=0),
        one("ReduceMin", lambda x, _: x.amin(0, keepdim=True), (3, 4), ints(0)),
        one("ReduceSumSquare", lambda x, _: (x * x).sum(1), (3, 4), ints(1), keepdims=0),
        one("ReduceL1", lambda x, _: x.abs().sum(1), (3, 4), ints(1), keepdims=0),
        one("ReduceL2", lambda x, _: x.norm(dim=1), (3, 4), ints(1), keepdims=0),
        one("ReduceLogSumExp", lambda x, _: x.logsumexp(1), (3, 4), ints(1), keepdims=0),
        one("Softmax", lambda x: x.softmax(1), (3, 4, 2), axis=1),
        one("LogSoftmax", lambda x: x.log_softmax(-1), (3, 4)),
        one("GlobalAveragePool", lambda x: x.mean((2, 3), keepdim=True), (2, 3, 4, 5)),
        one("GlobalMaxPool", lambda x: x.amax((2, 3), keepdim=True), (2, 3, 4, 5)),
        one("CumSum", lambda x, _: x.cumsum(1), (3, 4), np.int64(1)),
        one("CumSum", lambda x, _: x.flip(0).cumsum(0).flip(0), (3, 4), np.int64(0), reverse=1),
    ]


def _products() -> list[Case]:
    matmuls = [
        ((3, 4), (4, 2)),
        ((2, 3, 4), (4, 2)),
        ((2, 3, 4), (2, 4, 5)),
        ((3, 4), (2, 4, 5)),
        ((2, 1, 3, 4), (3, 4, 2)),
    ]
    vectors = [((4,), (4, 2)), ((3, 4), (4,)), ((4,), (4,)), ((4,), (2, 4, 3)), ((2, 3, 4), (4,))]
    gemms = [
        one(
            "Gemm",
            lambda a, b, c, ta=ta, tb=tb: 0.5 * (a.T if ta else a) @ (b.T if tb else b) + 2 * c,
            (4, 3) if ta else (3, 4),
            (2, 4) if tb else (4, 2),
            (2,),
            transA=ta,
            transB=tb,
            alpha=0.5,
            beta=2.0,
        )
        for ta in (0, 1)
        for tb in (0, 1)
    ]
    return [
        *(one("MatMul", torch.matmul, a, b) for a, b in (*matmuls, *vectors)),
        *gemms,
        one("Gemm", lambda a, b: a @ b, (3, 4), (4, 2)),
        one(
            "Einsum",
            lambda a, b: torch.einsum("bij,bjk->bik", a, b),
            (2, 3, 4),
            (2, 4, 2),
            equation="bij,bjk->bik",
        ),
        one(
            "Einsum",
            lambda a, b, c: torch.einsum("ij,jk,k->i", a, b, c),
            (3, 4),
            (4, 2),
            (2,),
            equation="ij,jk,k->i",
        ),
    ]


def _convolution(x: Sizes, w: Sizes, bias: bool = True, **o: Any) -> Case:
    rank = len(x) - 2
    function = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[rank]
    pads = o.get("pads", [0] * 2 * rank)
    both = [n for axis in reversed(range(rank)) for n in (pads[axis], pads[axis + rank])]

    def run(data, weight, bias=None):
        return function(
            F.pad(data, both),
            weight,
            bias,
            stride=o.get("strides", 1),
            dilation=o.get("dilations", 1),
            groups=o.get("group", 1),
        )

    return one("Conv", run, x, w, *([(w[0],)] if bias else []), **o)


def _transposed(
    x: Sizes, w: Sizes, pads: int = 0, output: int = 0, step: int = 1, group: int = 1, dilation: int = 1
) -> Case:
    def run(data, weight, bias):
        return F.conv_transpose2d(data, weight, bias, step, pads, output, group, dilation)

    options = {
        "pads": [pads] * 4,
        "output_padding": [output] * 2,
        "strides": [step] * 2,
        "group": group,
        "dilations": [dilation] * 2,
    }
    return one("ConvTranspose", run, x, w, (w[1] * group,), **options)


def _convolutions() -> list[Case]:
    return [
        _convolution((2, 3, 7, 6), (4, 3, 3, 3), pads=[1, 1, 1, 1]),
        _convolution((2, 3, 8, 7), (4, 3, 3, 2), strides=[2, 3], pads=[0, 1, 1, 0]),
        _convolution(
            (1, 3, 9, 9), (4, 3, 3, 3), dilations=[2, 2], strides=[2, 2], pads=[1, 1, 1, 1], bias=False
        ),
        _convolution((2, 4, 6, 6), (6, 2, 3, 3), group=2, strides=[2, 2], pads=[1, 1, 1, 1]),
        _convolution((2, 4, 6, 6), (4, 1, 3, 3), group=4, pads=[1, 1, 1, 1]),
        _convolution((1, 4, 6, 6), (8, 1, 3, 3), group=4, strides=[2, 2], pads=[1, 1, 1, 1]),
        _convolution((1, 4, 6, 6), (4, 1, 3, 3), group=4),
        _convolution((2, 3, 10), (4, 3, 3), strides=[4]),
        _convolution((1, 2, 4, 4, 4), (3, 2, 2, 2, 2), strides=[2, 2, 2]),
        one(
            "Conv",
            lambda x, w: F.conv2d(F.pad(x, (0, 1, 0, 1)), w, stride=2),
            (1, 2, 6, 6),
            (3, 2, 3, 3),
            auto_pad="SAME_UPPER",
            strides=[2, 2],
        ),
        _transposed((2, 3, 4, 4), (3, 2, 3, 3), pads=1, output=1, step=2),
        _transposed((1, 4, 5, 5), (4, 1, 2, 2), step=2, group=4),
        _transposed((2, 4, 4, 4), (4, 3, 3, 3), step=2, group=2, pads=1),
        _transposed((1, 2, 4, 4), (2, 3, 3, 3), dilation=2),
    ]


def _pools() -> list[Case]:
    def average(x: Sizes, k: int, s: int, p: int = 0, ceil: bool = False, count: bool = False) -> Case:
        function = lambda t: F.avg_pool2d(t, k, s, p, ceil, count)  # noqa: E731
        options = {
            "kernel_shape": [k, k],
            "strides": [s, s],
            "pads": [p] * 4,
            "ceil_mode": int(ceil),
            "count_include_pad": int(count),
        }
        return one("AveragePool", function, x, **options)

    def most(x: Sizes, k: int, s: int, p: int = 0, d: int = 1, ceil: bool = False) -> Case:
        function = lambda t: F.max_pool2d(t, k, s, p, d, ceil)  # noqa: E731
        options = {
            "kernel_shape": [k, k],
            "strides": [s, s],
            "pads": [p] * 4,
            "dilations": [d] * 2,
            "ceil_mode": int(ceil),
        }
        return one("MaxPool", function, x, **options)

    return [
        most((2, 3, 6, 6), 2, 2),
        most((2, 3, 7, 7), 2, 2),
        most((2, 2, 9, 9), 3, 3),
        most((2, 3, 8, 8), 3, 2, 1),
        most((1, 2, 9, 9), 3, 1, 1, 2),
        most((1, 2, 7, 7), 3, 2, 0, 1, True),
        most((2, 2, 8, 8), 4, 4),
        one("MaxPool", lambda x: F.max_pool1d(x, 2), (2, 3, 8), kernel_shape=[2], strides=[2]),
        average((2, 3, 6, 6), 2, 2),
        average((2, 3, 7, 7), 3, 2, 1),
        average((2, 3, 7, 7), 3, 2, 1, count=True),
        average((1, 2, 6, 6), 3, 2, 0, ceil=True),
        average((1, 2, 7, 7), 2, 2),
    ]


def _normalizations() -> list[Case]:
    running = (np.asarray([0.1, -0.2, 0.3], np.float32), np.asarray([1.5, 0.7, 1.1], np.float32))
    batch = lambda train: lambda x, s, b, m, v: F.batch_norm(x, m.clone(), v.clone(), s, b, train)  # noqa: E731
    return [
        one("LayerNormalization", lambda x, s, b: F.layer_norm(x, (4,), s, b), (2, 3, 4), (4,), (4,)),
        one("LayerNormalization", lambda x, s: F.layer_norm(x, (3, 4), s), (2, 3, 4), (3, 4), axis=1),
        one("BatchNormalization", batch(False), (2, 3, 4, 4), (3,), (3,), *running),
        one(
            "BatchNormalization",
            lambda x, s, b, m, v: (x - m[:, None]) / (v + 1e-5).sqrt()[:, None] * s[:, None] + b[:, None],
            (2, 3, 4),
            (3,),
            (3,),
            (3,),
            (3,),
            low=0.5,
        ),
        Case(
            "BatchNormalization",
            batch(True),
            ((2, 3, 4, 4), (3,), (3,), *running),
            {"training_mode": 1},
            outputs=3,
        ),
        one(
            "InstanceNormalization",
            lambda x, s, b: F.instance_norm(x, weight=s, bias=b),
            (2, 3, 4, 4),
            (3,),
            (3,),
        ),
        Case("RMSNormalization", lambda x, s: F.rms_norm(x, (4,), s, 1e-5), ((2, 3, 4), (4,)), opset=23),
    ]


def _movement() -> list[Case]:
    i = ints
    return [
        one("Reshape", lambda x, _: x.reshape(4, 6), (2, 3, 4), i(4, -1)),
        one("Flatten", lambda x: x.flatten(1), (2, 3, 4)),
        one("Squeeze", lambda x, _: x.squeeze(1), (3, 1, 4), i(1)),
        one("Unsqueeze", lambda x, _: x[:, None], (3, 4), i(1)),
        one("Transpose", lambda x: x.permute(2, 0, 1), (2, 3, 4), perm=[2, 0, 1]),
        one("Transpose", lambda x: x.T, (3, 4)),
        one("Expand", lambda x, _: x.expand(2, 3, 4), (3, 1), i(2, 3, 4)),
        one("Tile", lambda x, _: x.tile(2, 3), (3, 4), i(2, 3)),
        one("Concat", lambda *x: torch.cat(x, -1), (3, 4), (3, 2), (3, 1), axis=-1),
        Case("Split", lambda x, _: x[:, :3], ((2, 5), i(3, 2)), {"axis": 1}, outputs=2),
        one("Slice", lambda x, *_: x[1:3, :-1], (4, 5), i(1, 0), i(3, -1)),
        one("Slice", lambda x, *_: x[:, 1::3], (4, 8), i(1), i(99), i(1), i(3)),
        one("Slice", lambda x, *_: x[:, :7:2], (2, 8), i(0), i(7), i(1), i(2)),
        one("Slice", lambda x, *_: x.flip(1)[:, 1:6:2], (2, 8), i(-2), i(1), i(1), i(-2)),
        one("Slice", lambda x, *_: x.flip(0), (4, 3), i(-1), i(-99), i(0), i(-1)),
        one("Pad", lambda x, _: F.pad(x, (2, 0, 1, 1)), (3, 4), i(1, 2, 1, 0)),
        one("Pad", lambda x, _: F.pad(x, (-1, 2)), (3, 4), i(0, -1, 0, 2)),
        one("Pad", lambda x, *_: F.pad(x, (1, 2)), (3, 4), i(1, 2), None, i(1)),
        one("Trilu", lambda x: x.tril(), (4, 4), upper=0),
        one("DepthToSpace", lambda x: F.pixel_shuffle(x, 2), (2, 8, 2, 3), blocksize=2, mode="CRD"),
        one("DepthToSpace", lambda x: x.reshape(2, 2, 2, 2, 2, 3).permute(0, 3, 4, 1, 5, 2).reshape(2, 2, 4, 6), (2, 8, 2, 3), blocksize=2),
        one("SpaceToDepth", lambda x: x.reshape(1, 2, 2, 2, 3, 2).permute(0, 3, 5, 1, 2, 4).reshape(1, 8, 2, 3), (1, 2, 4, 6), blocksize=2),
        one("Resize", lambda x, _: F.interpolate(x, scale_factor=2), (1, 2, 3, 3), None, np.asarray([1, 1, 2, 2], np.float32),
            coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
        one("Gather", lambda x, _: x[[2, 0, 2]], (4, 3), i(2, 0, 2)),
        one("Gather", lambda x, _: x[[2, 0, 2]], (4, 3), np.asarray([2, 0, 2], np.int32)),
        one("Gather", lambda x, _: x[:, [[0, 1], [-1, 1]]], (2, 3, 4), np.asarray([[0, 1], [-1, 1]]), axis=1),
        one("Gather", lambda x, _: x[:, -1], (2, 3, 4), np.int64(-1), axis=1),
        one("GatherElements", lambda x, k: x.gather(1, k), (2, 3), np.asarray([[0, 0], [2, 1]]), axis=1),
        one("GatherND", lambda x, _: x[[0, 1, 0], [2, 0, 2]], (2, 3, 4), np.asarray([[0, 2], [1, 0], [0, 2]])),
        one("ScatterElements", lambda x, k, u: x.scatter_add(1, k, u), (2, 3), np.asarray([[0, 0], [2, 1]]), (2, 2), axis=1, reduction="add"),
        one("ScatterElements", lambda x, k, u: x.scatter(1, k, u), (2, 3), np.asarray([[0, 1], [2, 1]]), (2, 2), axis=1),
        one("ScatterND", lambda x, k, u: x.index_add(0, k[:, 0], u), (4, 3), np.asarray([[1], [1], [3]]), (3, 3), reduction="add"),
        one("ScatterND", lambda x, k, u: x.index_copy(0, k[:, 0], u), (4, 3), np.asarray([[1], [3]]), (2, 3)),
    ]  # fmt: skip


def _losses() -> list[Case]:
    labels, wide = ints(2, 0, 1), np.asarray([[0, 2], [1, 1]])
    weights = np.asarray([0.5, 1.0, 2.0, 1.5], np.float32)
    found = []
    for reduction in ("mean", "sum", "none"):
        o = {"reduction": reduction}
        found += [
            one("SoftmaxCrossEntropyLoss", lambda x, y, o=o: F.cross_entropy(x, y, **o), (3, 4), labels, **o),
            one(
                "SoftmaxCrossEntropyLoss",
                lambda x, y, w, o=o: F.cross_entropy(x, y, w, ignore_index=0, **o),
                (3, 4),
                labels,
                weights,
                ignore_index=0,
                **o,
            ),
            one("NegativeLogLikelihoodLoss", lambda x, y, o=o: F.nll_loss(x, y, **o), (2, 3, 2), wide, **o),
        ]
    return found


CASES = [
    *_unary(),
    *_binary(),
    *_reductions(),
    *_products(),
    *_convolutions(),
    *_pools(),
    *_normalizations(),
    *_movement(),
    *_losses(),
]
