"""Classifiers: a perceptron, ResNet-50 and DenseNet-121.

ResNet (He et al., "Deep Residual Learning", 2016) has the stride in its 3x3 convolution, as in the widely
trained v1.5; ReLU is in place, as in torchvision. DenseNet (Huang et al., "Densely Connected Convolutional
Networks", 2017) is written in the direct way, which keeps each concatenation for the backward pass: memory
grows with the square of a block's depth.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from neaptide.zoo.model import Batch
from neaptide.zoo.training import (
    Family,
    Sizes,
    classification_loss,
    image_batch,
    random_integers,
    random_normal,
)

EXPANSION = 4  # of ResNet's bottlenecks
BOTTLENECK = 4  # of DenseNet's layers


def make_mlp(layers: int, features: int, width: int, classes: int) -> nn.Sequential:
    """`layers` linear layers in all, the last one giving the class scores."""
    widths = [features] + [width] * (layers - 1)
    hidden: list[nn.Module] = []
    for n_in, n_out in pairwise(widths):
        hidden += [nn.Linear(n_in, n_out), nn.ReLU()]
    return nn.Sequential(*hidden, nn.Linear(widths[-1], classes))


class Bottleneck(nn.Module):
    """1x1 down, 3x3, 1x1 up, with a shortcut around them."""

    def __init__(self, n_in: int, width: int, stride: int) -> None:
        super().__init__()
        n_out = width * EXPANSION
        self.conv1 = nn.Conv2d(n_in, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, n_out, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(n_out)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or n_in != n_out:
            self.shortcut = nn.Sequential(
                nn.Conv2d(n_in, n_out, 1, stride=stride, bias=False), nn.BatchNorm2d(n_out)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Shape (batch, n_in, h, w) to (batch, 4 * width, h / stride, w / stride)."""
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += self.shortcut(x)
        out: Tensor = self.relu(y)
        return out


class ResNet(nn.Module):
    """Stem, one stage of bottlenecks per entry of `layers`, average pooling, classifier."""

    def __init__(self, layers: Sequence[int], width: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        stages: list[nn.Module] = []
        n_in = width
        for index, n_blocks in enumerate(layers):
            stage_width = width << index
            blocks: list[nn.Module] = []
            for block in range(n_blocks):
                blocks.append(Bottleneck(n_in, stage_width, stride=2 if index and not block else 1))
                n_in = stage_width * EXPANSION
            stages.append(nn.Sequential(*blocks))
        self.stages = nn.Sequential(*stages)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(n_in, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        """Class scores of shape (batch, classes)."""
        features = self.pool(self.stages(self.stem(images)))
        scores: Tensor = self.classifier(features.flatten(1))
        return scores


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


def _feature_batch(s: Sizes) -> Batch:
    features = random_normal(s, (s.batch, s.features))
    return {"images": features, "labels": random_integers(s, s.classes, (s.batch,))}


mlp = Family(
    lambda s: make_mlp(s.layers, s.features, s.width, s.classes), _feature_batch, classification_loss
)
resnet = Family(lambda s: ResNet(s.layers, s.width, s.classes), image_batch, classification_loss)
densenet = Family(lambda s: make_densenet(s.layers, s.growth, s.classes), image_batch, classification_loss)
