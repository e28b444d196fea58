"""Networks found by architecture search as ordering problems, from their published genotypes.

Small ones for CIFAR and ImageNet with the macro architecture of the HMCOS evaluation (Wang et al., DAC 2022), large ones
(NASNet-A 6@4032, PNASNet-5) in `nas_networks_large`. The memory model is that of `conv_forms`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from neaptide_corpus.conv_forms import ConvForm, FeatureMap
from neaptide_corpus.order_forms import OrderForm

_Choice = tuple[str, int]
_Block = tuple[_Choice, _Choice]


@dataclass(frozen=True, slots=True)
class Genotype:
    """Cells of a network: each block adds two operations on earlier results; 0 is the cell before last, 1 the last.

    Attributes:
        normal: blocks of the cells that keep the side.
        normal_concat: results that make the cell's output.
        reduction: blocks of the cells that halve it; operations on 0 and 1 have stride 2.
        reduction_concat: results that make the output.
        source: paper.
    """

    normal: tuple[_Block, ...]
    normal_concat: tuple[int, ...]
    reduction: tuple[_Block, ...]
    reduction_concat: tuple[int, ...]
    source: str


_PNAS_BLOCKS: Final[tuple[_Block, ...]] = (
    (("sep5x5", 0), ("max3x3", 0)),
    (("sep7x7", 1), ("max3x3", 1)),
    (("sep5x5", 1), ("sep3x3", 1)),
    (("sep3x3", 4), ("max3x3", 1)),
    (("sep3x3", 0), ("avg1x1", 1)),  # identity; the pooling gives it a stride in reduction cells
)

GENOTYPES: Final[Mapping[str, Genotype]] = MappingProxyType(
    {
        "nasnet": Genotype(
            normal=(
                (("sep5x5", 1), ("sep3x3", 0)),
                (("sep5x5", 0), ("sep3x3", 0)),
                (("avg3x3", 1), ("identity", 0)),
                (("avg3x3", 0), ("avg3x3", 0)),
                (("sep3x3", 1), ("identity", 1)),
            ),
            normal_concat=(0, 2, 3, 4, 5, 6),
            reduction=(
                (("sep5x5", 1), ("sep7x7", 0)),
                (("max3x3", 1), ("sep7x7", 0)),
                (("avg3x3", 1), ("sep5x5", 0)),
                (("identity", 3), ("avg3x3", 2)),
                (("sep3x3", 2), ("max3x3", 1)),
            ),
            reduction_concat=(3, 4, 5, 6),
            source="NASNet-A: Zoph et al., CVPR 2018",
        ),
        "amoebanet": Genotype(
            normal=(
                (("avg3x3", 0), ("max3x3", 0)),
                (("identity", 0), ("avg3x3", 1)),
                (("sep5x5", 2), ("sep3x3", 1)),
                (("sep3x3", 2), ("identity", 1)),
                (("avg3x3", 4), ("sep3x3", 0)),
            ),
            normal_concat=(3, 5, 6),
            reduction=(
                (("avg3x3", 0), ("sep3x3", 1)),
                (("max3x3", 1), ("max3x3", 0)),
                (("max3x3", 0), ("sep7x7", 2)),
                (("sep7x7", 0), ("avg3x3", 1)),
                (("sep3x3", 3), ("conv1x7_7x1", 0)),
            ),
            reduction_concat=(4, 5, 6),
            source="AmoebaNet-A: Real et al., AAAI 2019",
        ),
        "darts": Genotype(
            normal=(
                (("sep3x3", 0), ("sep3x3", 1)),
                (("sep3x3", 0), ("sep3x3", 1)),
                (("sep3x3", 1), ("identity", 0)),
                (("identity", 0), ("dil3x3", 2)),
            ),
            normal_concat=(2, 3, 4, 5),
            reduction=(
                (("max3x3", 0), ("max3x3", 1)),
                (("identity", 2), ("max3x3", 1)),
                (("max3x3", 0), ("identity", 2)),
                (("identity", 2), ("max3x3", 1)),
            ),
            reduction_concat=(2, 3, 4, 5),
            source="DARTS, second order (V2): Liu et al., ICLR 2019",
        ),
        "pnas": Genotype(
            normal=_PNAS_BLOCKS,
            normal_concat=(2, 3, 4, 5, 6),
            reduction=_PNAS_BLOCKS,
            reduction_concat=(2, 3, 4, 5, 6),
            source="PNASNet-5: Liu et al., ECCV 2018",
        ),
    }
)


@dataclass(frozen=True, slots=True)
class MacroArchitecture:
    """How cells are stacked: stem, `reductions_first` reduction cells, then normal cells with reductions between.

    Attributes:
        side: of the image, 3 channels.
        stem_stride: of the 3x3 stem convolution to 32 channels.
        reductions_first: reduction cells after the stem.
        repeats: normal cells in each of the three groups.
        classes: of the dense layer.
    """

    side: int
    stem_stride: int
    reductions_first: int
    repeats: int
    classes: int

    def cells(self) -> list[bool]:
        """Which cells are reductions, in order."""
        group = [False] * self.repeats
        return [True] * self.reductions_first + group + [True, *group] + [True, *group]


CIFAR: Final = MacroArchitecture(side=32, stem_stride=1, reductions_first=0, repeats=6, classes=100)
IMAGENET: Final = MacroArchitecture(side=224, stem_stride=2, reductions_first=2, repeats=4, classes=1000)
_STEM_CHANNELS: Final = 32

NAS_NETWORKS: Final[Mapping[str, tuple[str, MacroArchitecture, float]]] = MappingProxyType(
    {
        "nasnet_cifar": ("nasnet", CIFAR, 32),
        "nasnet_imagenet": ("nasnet", IMAGENET, 11),
        "amoebanet_cifar": ("amoebanet", CIFAR, 36),
        "amoebanet_imagenet": ("amoebanet", IMAGENET, 12.5),  # doubled before its first use
        "darts_cifar": ("darts", CIFAR, 36),
        "darts_imagenet": ("darts", IMAGENET, 12),
        "pnas_cifar": ("pnas", CIFAR, 32),
        "pnas_imagenet": ("pnas", IMAGENET, 11),
    }
)
"""Name -> genotype, macro architecture and filters of the first cells; each reduction doubles the filters."""


def nas_network(name: str) -> OrderForm:
    """One of `NAS_NETWORKS` in the neutral form. Raises KeyError for another name."""
    genotype, macro, filters = NAS_NETWORKS[name]
    return cell_network(GENOTYPES[genotype], macro, filters)


def cell_network(genotype: Genotype, macro: MacroArchitecture, filters: float) -> OrderForm:
    """A network of stacked cells in the neutral form, batch 1, fp32, batch norm fused.

    Args:
        genotype: what the cells do.
        macro: how they are stacked.
        filters: of the first cells, before the first doubling.
    """
    net = ConvForm()
    return net.finish(stack_cells(net, genotype, macro, filters))


def stack_cells(net: ConvForm, genotype: Genotype, macro: MacroArchitecture, filters: float) -> FeatureMap:
    """Append the network of `cell_network` to a form; returns its logits."""
    before: FeatureMap | None = None
    current = net.conv(net.image(3, macro.side), _STEM_CHANNELS, kernel=(3, 3), stride=macro.stem_stride)
    width = filters
    for reduction in macro.cells():
        width = width * 2 if reduction else width
        made = _cell(net, genotype, before, current, int(width), reduction=reduction)
        before, current = current, made
    return net.logits(current, macro.classes)


def _cell(
    net: ConvForm,
    genotype: Genotype,
    before: FeatureMap | None,
    current: FeatureMap,
    filters: int,
    *,
    reduction: bool,
) -> FeatureMap:
    last = _squeeze(net, current, filters)
    results = [_fit(net, before, last, filters), last]
    blocks = genotype.reduction if reduction else genotype.normal
    for block in blocks:
        sides = [
            _OPERATIONS[kind](net, results[of], filters, 2 if reduction and of < 2 else 1)
            for kind, of in block
        ]
        results.append(net.add(*sides))
    concat = genotype.reduction_concat if reduction else genotype.normal_concat
    return net.concat([results[i] for i in concat])


def _squeeze(net: ConvForm, x: FeatureMap, filters: int) -> FeatureMap:
    return net.conv(net.relu(x), filters)


def _fit(net: ConvForm, before: FeatureMap | None, last: FeatureMap, filters: int) -> FeatureMap:
    """The cell before last in the shape of the last one."""
    if before is None:
        return last
    if before.height == last.height:
        return _squeeze(net, before, filters)
    return net.factorized_reduction(before, filters)


def _separable_twice(net: ConvForm, x: FeatureMap, filters: int, kernel: int, stride: int) -> FeatureMap:
    x = net.separable(net.relu(x), filters, kernel=kernel, stride=stride)
    return net.separable(net.relu(x), filters, kernel=kernel)


def _asymmetric(net: ConvForm, x: FeatureMap, filters: int, stride: int) -> FeatureMap:
    return net.conv(net.conv(x, filters, kernel=(1, 7), stride=stride), filters, kernel=(7, 1))


_OPERATIONS: Final[Mapping[str, Callable[[ConvForm, FeatureMap, int, int], FeatureMap]]] = MappingProxyType(
    {
        "identity": lambda _net, x, _filters, _stride: x,
        "sep3x3": lambda net, x, filters, stride: _separable_twice(net, x, filters, 3, stride),
        "sep5x5": lambda net, x, filters, stride: _separable_twice(net, x, filters, 5, stride),
        "sep7x7": lambda net, x, filters, stride: _separable_twice(net, x, filters, 7, stride),
        "dil3x3": lambda net, x, filters, stride: net.separable(
            net.relu(x), filters, kernel=3, stride=stride
        ),
        "conv1x7_7x1": _asymmetric,
        "avg1x1": lambda net, x, _filters, stride: net.pool(x, "avg", kernel=1, stride=stride),
        "avg3x3": lambda net, x, _filters, stride: net.pool(x, "avg", stride=stride),
        "max3x3": lambda net, x, _filters, stride: net.pool(x, "max", stride=stride),
    }
)
