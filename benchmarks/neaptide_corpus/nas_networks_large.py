"""NASNet-A (6 @ 4032) and PNASNet-5 (large) for ImageNet at 331 pixels as ordering problems.

Structure as published in TensorFlow-Slim and carried over to timm (`nasnetalarge`, `pnasnet5large`). Two styles of
`conv_forms` matter: `COMPILED` folds batch norms and shares bytes in place; `CAPTURED` is what PyTorch's dispatcher
sees: batch norms and paddings of strided windows are operations, max pooling makes indices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from neaptide_corpus.conv_forms import COMPILED, ConvForm, ConvStyle, FeatureMap
from neaptide_corpus.order_forms import OrderForm

_STEM_CHANNELS: Final = 96
_CLASSES: Final = 1000
_SIDE: Final = 331


def nasnet_a_large(style: ConvStyle = COMPILED) -> OrderForm:
    """NASNet-A with 6 normal cells a group and 4032 channels at the end (Zoph et al., CVPR 2018)."""
    net = ConvForm(style)
    stem = net.conv(net.image(3, _SIDE), _STEM_CHANNELS, kernel=(3, 3), stride=2, padding=False)
    first = _nasnet_reduction(net, stem, _squeeze(net, stem, 42), 42)
    last = _squeeze(net, first, 84)
    second = _nasnet_reduction(net, net.factorized_reduction(stem, 84, one_shift=True), last, 84)
    before, current = first, second
    for group, width in enumerate((168, 336, 672)):
        if group:
            left, right = _squeeze(net, before, width), _squeeze(net, current, width)
            reduced = _nasnet_reduction(net, left, right, width)
            current = (
                reduced  # the next cell's other operand is the one that the reduction read, at twice the side
            )
        for index in range(6):
            if index == 0:
                left = net.factorized_reduction(before, width, one_shift=True)
            else:
                left = _squeeze(net, before, width)
            made = _nasnet_normal(net, left, _squeeze(net, current, width), width)
            before, current = current, made
    return net.finish(net.logits(current, _CLASSES, bias=False))


def pnasnet_5_large(style: ConvStyle = COMPILED) -> OrderForm:
    """PNASNet-5 with 3 normal cells a group and 4320 channels at the end (Liu et al., ECCV 2018)."""
    net = ConvForm(style)
    stem = net.conv(net.image(3, _SIDE), _STEM_CHANNELS, kernel=(3, 3), stride=2, padding=False)
    first = _pnasnet_cell(net, stem, _squeeze(net, stem, 54), 54, stride=2)
    before, current = stem, first
    plan = [
        (108, 2),
        (216, 1),
        (216, 1),
        (216, 1),
        (216, 1),
        (432, 2),
        (432, 1),
        (432, 1),
        (432, 1),
        (864, 2),
    ]
    for width, stride in [*plan, (864, 1), (864, 1), (864, 1)]:
        if before.height == current.height:
            left = _squeeze(net, before, width)
        else:
            left = net.factorized_reduction(before, width, one_shift=True)
        made = _pnasnet_cell(net, left, _squeeze(net, current, width), width, stride=stride)
        before, current = current, made
    return net.finish(net.logits(current, _CLASSES, bias=False))


LARGE_NETWORKS: Final[Mapping[str, Callable[[ConvStyle], OrderForm]]] = MappingProxyType(
    {"nasnet_a_large": nasnet_a_large, "pnasnet_5_large": pnasnet_5_large}
)


def _squeeze(net: ConvForm, x: FeatureMap, channels: int, stride: int = 1) -> FeatureMap:
    return net.conv(net.relu(x), channels, stride=stride)


def _branch(net: ConvForm, x: FeatureMap, channels: int, kernel: int, stride: int = 1) -> FeatureMap:
    x = net.separable(net.relu(x), channels, kernel=kernel, stride=stride)
    return net.separable(net.relu(x), channels, kernel=kernel)


def _nasnet_normal(net: ConvForm, left: FeatureMap, right: FeatureMap, width: int) -> FeatureMap:
    parts = [left]
    parts.append(net.add(_branch(net, right, width, 5), _branch(net, left, width, 3)))
    parts.append(net.add(_branch(net, left, width, 5), _branch(net, left, width, 3)))
    parts.append(net.add(net.pool(right, "avg"), left))
    parts.append(net.add(net.pool(left, "avg"), net.pool(left, "avg")))
    parts.append(net.add(_branch(net, right, width, 3), right))
    return net.concat(parts)


def _nasnet_reduction(net: ConvForm, left: FeatureMap, right: FeatureMap, width: int) -> FeatureMap:
    first = net.add(_branch(net, right, width, 5, 2), _branch(net, left, width, 7, 2))
    second = net.add(net.pool(right, "max", stride=2), _branch(net, left, width, 7, 2))
    third = net.add(net.pool(right, "avg", stride=2), _branch(net, left, width, 5, 2))
    fourth = net.add(net.pool(first, "avg"), second)
    fifth = net.add(_branch(net, first, width, 3), net.pool(right, "max", stride=2))
    return net.concat([second, third, fourth, fifth])


def _pnasnet_cell(
    net: ConvForm, left: FeatureMap, right: FeatureMap, width: int, *, stride: int
) -> FeatureMap:
    branch = _branch(net, left, width, 5, stride)
    pooled = net.pool(left, "max", stride=stride)
    if pooled.channels != width:  # only the stem reads a map that no squeeze has brought to the width
        pooled = net.conv(pooled, width)
    first = net.add(branch, pooled)
    second = net.add(_branch(net, right, width, 7, stride), net.pool(right, "max", stride=stride))
    third = net.add(_branch(net, right, width, 5, stride), _branch(net, right, width, 3, stride))
    fourth = net.add(_branch(net, third, width, 3), net.pool(right, "max", stride=stride))
    branch = _branch(net, left, width, 3, stride)
    fifth = net.add(branch, _squeeze(net, right, width, stride) if stride > 1 else right)
    return net.concat([first, second, third, fourth, fifth])
