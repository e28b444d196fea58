"""Training steps of convolutional networks as ordering problems: forward, backward and SGD.

Program order is forward, backward, then all updates, as `optimizer.step()` after `loss.backward()` has it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from neaptide_corpus.conv_backward import Backward, Update
from neaptide_corpus.conv_forms import ConvForm, ConvStyle, FeatureMap
from neaptide_corpus.nas_networks import GENOTYPES, MacroArchitecture, stack_cells
from neaptide_corpus.order_forms import OrderForm
from neaptide_corpus.rand_wire import wire_cells

_TRAINING: Final = ConvStyle(fuse_batch_norm=False, pool_indices=True, batch_statistics=True)
_FLOAT_BYTES: Final = 4


Network = Callable[[ConvForm], FeatureMap]


def training_step(network: Network, *, batch: int, update: Update = Update.IN_PLACE) -> OrderForm:
    """A training step in the neutral form. Weights are left out: they are there all the time.

    Args:
        network: appends the forward pass to a form, returns the logits.
        batch: images.
        update: what becomes of the weight gradients.
    """
    net = ConvForm(_TRAINING, batch=batch)
    logits = network(net)
    return Backward(net, update).finish(logits)


def vgg16(side: int, classes: int = 1000) -> Network:
    """VGG16 without batch norm (Simonyan and Zisserman, ICLR 2015), images of `side` pixels, a multiple of 32."""

    def build(net: ConvForm) -> FeatureMap:
        x = net.image(3, side)
        for width, repeats in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
            for _ in range(repeats):
                x = net.conv(x, width, kernel=(3, 3), norm=False)
                x = net.relu(
                    net.result("bias", [x], x.shape, elementwise=True, parameter_bytes=_FLOAT_BYTES * width)
                )
            x = net.pool(x, "max", kernel=2, stride=2, padding=False)
        x = net.result("adaptive_avg_pool", [x], (512, 7, 7))
        for _ in range(2):
            x = net.relu(net.dense(x, 4096))
        return net.dense(x, classes)

    return build


def hrnet_w18_small(side: int, classes: int = 1000) -> Network:
    """HRNet-W18-small, version 1 (Wang et al., TPAMI 2020), images of `side` pixels, a multiple of 32."""

    def build(net: ConvForm) -> FeatureMap:
        x = net.image(3, side)
        for _ in range(2):
            x = _conv_relu(net, x, 64, 3, 2)
        streams = [_bottleneck(net, x, 32)]
        for stage in range(1, 4):
            widths = [16 << i for i in range(stage + 1)]
            streams = _transition(net, streams, widths)
            streams = [_basic_block(net, _basic_block(net, x)) for x in streams]
            streams = [_fuse(net, streams, i) for i in range(len(streams))]
        head: FeatureMap | None = None
        for x, width in zip(streams, (32, 64, 128, 256), strict=True):
            wide = _bottleneck(net, x, width)
            head = wide if head is None else net.add(wide, _conv_relu(net, head, 4 * width, 3, 2))
        assert head is not None
        return net.logits(_conv_relu(net, head, 2048, 1, 1), classes, relu=False)

    return build


def darts_cells(side: int, repeats: int = 2, filters: int = 36) -> Network:
    """DARTS V2 cells for CIFAR-like images."""
    macro = MacroArchitecture(side=side, stem_stride=1, reductions_first=0, repeats=repeats, classes=100)
    return lambda net: stack_cells(net, GENOTYPES["darts"], macro, filters)


def nasnet_cells(side: int, repeats: int = 1, filters: int = 32) -> Network:
    """NASNet-A cells for CIFAR-like images."""
    macro = MacroArchitecture(side=side, stem_stride=1, reductions_first=0, repeats=repeats, classes=100)
    return lambda net: stack_cells(net, GENOTYPES["nasnet"], macro, filters)


def random_wiring(side: int, seed: int = 0) -> Network:
    """The RandWire network of `rand_wire`."""
    return lambda net: wire_cells(net, seed, side=side)


TRAINING_STEPS: Final[Mapping[str, tuple[Network, int]]] = MappingProxyType(
    {
        "vgg16_b1_224": (vgg16(224), 1),
        "hrnet_w18_small_b1_224": (hrnet_w18_small(224), 1),
        "darts_b8_32": (darts_cells(32), 8),
        "nasnet_b8_32": (nasnet_cells(32), 8),
        "rand_wire_b1_224": (random_wiring(224), 1),
    }
)
"""Name (network, batch, side in pixels) -> network and batch."""


def _conv_relu(net: ConvForm, x: FeatureMap, width: int, kernel: int, stride: int) -> FeatureMap:
    return net.relu(net.conv(x, width, kernel=(kernel, kernel), stride=stride))


def _bottleneck(net: ConvForm, x: FeatureMap, width: int) -> FeatureMap:
    inner = _conv_relu(net, _conv_relu(net, x, width, 1, 1), width, 3, 1)
    wide = net.conv(inner, 4 * width)
    return net.relu(net.add(wide, net.conv(x, 4 * width) if x.channels != 4 * width else x))


def _basic_block(net: ConvForm, x: FeatureMap) -> FeatureMap:
    inner = net.conv(_conv_relu(net, x, x.channels, 3, 1), x.channels, kernel=(3, 3))
    return net.relu(net.add(inner, x))


def _transition(net: ConvForm, streams: list[FeatureMap], widths: list[int]) -> list[FeatureMap]:
    """A stream for each width; the new one starts from the last, with half its side."""
    kept = [
        x if x.channels == width else _conv_relu(net, x, width, 3, 1)
        for x, width in zip(streams, widths, strict=False)
    ]
    return [*kept, _conv_relu(net, streams[-1], widths[-1], 3, 2)]


def _fuse(net: ConvForm, streams: list[FeatureMap], to: int) -> FeatureMap:
    total: FeatureMap | None = None
    target = streams[to]
    for source, x in enumerate(streams):
        y = x
        if source > to:
            y = net.result("upsample", [net.conv(x, target.channels)], target.shape)
        for step in range(source, to):
            last = step == to - 1
            y = net.conv(y, target.channels if last else x.channels, kernel=(3, 3), stride=2)
            y = y if last else net.relu(y)
        total = y if total is None else net.add(total, y)
    assert total is not None
    return net.relu(total)
