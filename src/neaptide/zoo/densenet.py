"""DenseNet-121 (Huang et al., "Densely Connected Convolutional Networks", 2017).

Every layer reads the concatenation of all earlier ones in its block. Written in the direct way, which keeps
each concatenation for the backward pass: memory grows with the square of a block's depth.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from neaptide.zoo.model import Batch, Step
from neaptide.zoo.training import (
    classification_batch,
    classification_loss,
    construction,
    make_optimizer,
    make_step,
    prepared,
)

BOTTLENECK = 4


class DenseLayer(nn.Module):
    """Norm, ReLU, 1x1 convolution, norm, ReLU, 3x3 convolution."""

    def __init__(self, n_in: int, growth: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(n_in)
        self.conv1 = nn.Conv2d(n_in, BOTTLENECK * growth, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(BOTTLENECK * growth)
        self.conv2 = nn.Conv2d(BOTTLENECK * growth, growth, 3, padding=1, bias=False)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        """The `growth` new channels."""
        y = self.conv1(self.relu(self.norm1(x)))
        new: Tensor = self.conv2(self.relu(self.norm2(y)))
        return new


class DenseBlock(nn.Module):
    """`depth` layers, each reading all before it."""

    def __init__(self, n_in: int, depth: int, growth: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DenseLayer(n_in + i * growth, growth) for i in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        """Shape (batch, n_in, h, w) to (batch, n_in + depth * growth, h, w)."""
        features = [x]
        for layer in self.layers:
            features.append(layer(torch.cat(features, 1)))
        return torch.cat(features, 1)


def make_densenet(layers: Sequence[int], growth: int, classes: int) -> nn.Sequential:
    """The whole network; `layers` gives the depth of each block, between which channels and size are halved."""
    n_channels = 2 * growth
    parts: list[nn.Module] = [
        nn.Conv2d(3, n_channels, 7, stride=2, padding=3, bias=False),
        nn.BatchNorm2d(n_channels),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, stride=2, padding=1),
    ]
    for index, depth in enumerate(layers):
        parts.append(DenseBlock(n_channels, depth, growth))
        n_channels += depth * growth
        parts += [nn.BatchNorm2d(n_channels), nn.ReLU(inplace=True)]
        if index + 1 < len(layers):
            parts += [nn.Conv2d(n_channels, n_channels // 2, 1, bias=False), nn.AvgPool2d(2)]
            n_channels //= 2
    parts += [nn.AdaptiveAvgPool2d(1), nn.Flatten(1), nn.Linear(n_channels, classes)]
    model = nn.Sequential(*parts)
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight)
    return model


def build(
    *,
    layers: tuple[int, ...],
    growth: int,
    classes: int,
    batch: int,
    image: int,
    lr: float,
    precision: str,
    seed: int,
    device: str,
) -> tuple[Step, Batch]:
    """A step of SGD with momentum; (6, 12, 24, 16) and growth 32 is DenseNet-121."""
    with construction(seed, device):
        model = make_densenet(layers, growth, classes)
    prepared(model, device, precision)
    optimizer = make_optimizer("sgd", model, lr)
    data = classification_batch(batch, image, classes, device, precision)
    return make_step(model, optimizer, classification_loss, device, precision), data
