"""Small networks of seven families as ONNX models, drawn at random: what an order of passes is learned from and judged on.

A family and a seed decide a model to the bit: its sides, channels, depths and wiring, and its weights. Sides are those of small
devices, and weights are small, so that a search over passes measures a graph in milliseconds.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from neaptide_corpus.onnx_network import OnnxNetwork, Tensor

if TYPE_CHECKING:
    from onnx import ModelProto

SEEDS: Final = 20
"""Graphs of a family."""
_WITH_NORMS: Final = 0.2  # share of models in which batch norms stand


def two_convolutions(net: OnnxNetwork, draw: random.Random) -> Tensor:
    """Two convolutions with pools, then a classifier: a keyword spotter."""
    x = net.input(draw.choice((1, 1, 3)), draw.choice((32, 40, 48, 64)), draw.choice((32, 40, 48, 64)))
    for _ in range(2):
        x = net.relu(net.convolution(x, draw.choice((8, 16, 24, 32)), draw.choice((3, 5)), bias=True))
        x = net.max_pool(x, draw.choice((2, 2, 4)))
    return net.dense(net.relu(net.dense(net.flatten(x), draw.choice((32, 64)))), draw.choice((3, 10, 12)))


def mobile(net: OnnxNetwork, draw: random.Random) -> Tensor:
    """Inverted residuals: a wide depthwise convolution between two narrow results."""
    side = draw.choice((32, 48, 64))
    x = net.input(3, side, side)
    x = net.relu6(net.normalised(net.convolution(x, draw.choice((8, 16)), 3, stride=2)))
    for _ in range(draw.randint(2, 4)):
        wide = x.channels * draw.choice((2, 4, 6))
        channels, stride = draw.choice(((x.channels, 1), (x.channels, 1), (2 * x.channels, 2)))
        y = net.relu6(net.normalised(net.convolution(x, wide, 1)))
        y = net.relu6(net.normalised(net.convolution(y, wide, 3, stride=stride, groups=wide)))
        y = net.normalised(net.convolution(y, channels, 1))
        x = net.add(x, y) if stride == 1 else y
    return net.dense(net.flatten(net.mean(x)), 10)


def residual(net: OnnxNetwork, draw: random.Random) -> Tensor:
    """Blocks of two convolutions beside a shortcut."""
    side = draw.choice((32, 48, 64))
    x = net.input(3, side, side)
    x = net.relu(net.normalised(net.convolution(x, draw.choice((8, 16)), 3, stride=draw.choice((1, 2)))))
    if draw.random() < 0.5:
        x = net.max_pool(x, 2)
    for _ in range(draw.randint(2, 3)):
        channels, stride = draw.choice(((x.channels, 1), (2 * x.channels, 2)))
        y = net.relu(net.normalised(net.convolution(x, channels, 3, stride=stride)))
        y = net.normalised(net.convolution(y, channels, 3))
        if stride == 2:
            x = net.normalised(net.convolution(x, channels, 1, stride=2))
        x = net.relu(net.add(x, y))
    return net.dense(net.flatten(net.mean(x)), 10)


def dense(net: OnnxNetwork, draw: random.Random) -> Tensor:
    """Every layer reads the join of all before it in its block; a convolution and a pool lie between blocks."""
    side = draw.choice((16, 24, 32))
    x = net.input(3, side, side)
    x = net.convolution(x, draw.choice((8, 12, 16)), 3)
    growth, blocks = draw.choice((4, 8, 12)), draw.randint(1, 2)
    for block in range(blocks):
        kept = [x]
        for _ in range(draw.randint(2, 3)):
            y = kept[0] if len(kept) == 1 else net.join(kept)
            kept.append(net.convolution(net.relu(net.normalised(y)), growth, 3))
        x = net.relu(net.normalised(net.join(kept)))
        if block < blocks - 1:
            x = net.average_pool(net.convolution(x, x.channels // 2, 1), 2)
    return net.dense(net.flatten(net.mean(x)), 10)


def unet(net: OnnxNetwork, draw: random.Random) -> Tensor:
    """An encoder whose results a decoder joins to what comes from below."""
    side, depth, width = draw.choice((32, 48)), draw.randint(2, 3), draw.choice((8, 12, 16))
    twice = draw.random() < 0.5
    x = net.input(draw.choice((1, 3)), side, side)

    def convolved(y: Tensor, channels: int) -> Tensor:
        for _ in range(2 if twice else 1):
            y = net.relu(net.convolution(y, channels, 3, bias=True))
        return y

    skips = []
    for level in range(depth):
        x = convolved(x, width * 2**level)
        skips.append(x)
        x = net.max_pool(x, 2)
    x = convolved(x, width * 2**depth)
    for level in reversed(range(depth)):
        x = net.join([net.upsampled(x), skips[level]])
        x = convolved(x, width * 2**level)
    return net.convolution(x, 2, 1, bias=True)


def cells(net: OnnxNetwork, draw: random.Random) -> Tensor:
    """Cells of a searched network: each node adds two operations on earlier results, and the cell joins its nodes."""
    side, channels = draw.choice((16, 24, 32)), draw.choice((4, 8, 12))
    x = net.input(3, side, side)
    before = last = net.normalised(net.convolution(x, channels, 3))
    for _ in range(draw.randint(1, 2)):
        made = [
            net.normalised(net.convolution(net.relu(y), channels, 1)) if y.channels != channels else y
            for y in (before, last)
        ]
        nodes = draw.randint(3, 4)
        for _ in range(nodes):
            pair = [_cell_operation(net, draw, draw.choice(made), channels) for _ in range(2)]
            made.append(net.add(*pair))
        before, last = last, net.join(made[2:])
    return net.dense(net.flatten(net.mean(last)), 10)


def _cell_operation(net: OnnxNetwork, draw: random.Random, x: Tensor, channels: int) -> Tensor:
    kind = draw.choice(("separable", "separable", "convolution", "maximum", "mean", "identity"))
    if kind == "separable":
        y = net.convolution(net.relu(x), channels, 3, groups=channels)
        return net.normalised(net.convolution(y, channels, 1))
    if kind == "convolution":
        return net.normalised(net.convolution(net.relu(x), channels, 3))
    if kind == "maximum":
        return net.max_pool(x, 3, stride=1)
    return net.average_pool(x, 3, stride=1) if kind == "mean" else x


def inception(net: OnnxNetwork, draw: random.Random) -> Tensor:
    """Modules of four branches that read the same result and are joined."""
    side = draw.choice((16, 24, 32))
    x = net.input(3, side, side)
    x = net.relu(net.convolution(x, draw.choice((8, 16)), 3, bias=True))
    modules = draw.randint(1, 2)
    for module in range(modules):
        width = draw.choice((4, 8, 12))

        def convolved(y: Tensor, channels: int, kernel: int) -> Tensor:
            return net.relu(net.convolution(y, channels, kernel, bias=True))

        branches = [convolved(x, width, 1), convolved(convolved(x, width // 2, 1), width, 3)]
        if draw.random() < 0.7:
            branches.append(convolved(convolved(x, width // 2, 1), width, 5))
        branches.append(convolved(net.max_pool(x, 3, stride=1), width, 1))
        x = net.join(branches)
        if module < modules - 1 and draw.random() < 0.5:
            x = net.max_pool(x, 2)
    return net.dense(net.flatten(net.mean(x)), 10)


FAMILIES: Final[Mapping[str, Callable[[OnnxNetwork, random.Random], Tensor]]] = MappingProxyType(
    {
        "two": two_convolutions,
        "mobile": mobile,
        "residual": residual,
        "dense": dense,
        "unet": unet,
        "cells": cells,
        "inception": inception,
    }
)


def family_model(family: str, seed: int) -> ModelProto:
    """The model of a family that a seed draws."""
    draw = random.Random(f"{family} {seed}")
    net = OnnxNetwork(f"{family}_{seed}", seed, has_norms=draw.random() < _WITH_NORMS)
    return net.finish(FAMILIES[family](net, draw))


def family_models(
    families: Sequence[str] = tuple(FAMILIES), seeds: Sequence[int] = range(SEEDS)
) -> list[ModelProto]:
    """Models of some families, seed by seed."""
    return [family_model(family, seed) for family in families for seed in seeds]
