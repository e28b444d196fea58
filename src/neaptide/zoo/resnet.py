"""ResNet-50 (He et al., "Deep Residual Learning", 2016): bottleneck blocks with batch norm.

The stride sits in the 3x3 convolution, as in the widely trained v1.5; ReLU is in place, as in torchvision.
"""

from __future__ import annotations

from collections.abc import Sequence

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

EXPANSION = 4


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


def build(
    *,
    layers: tuple[int, ...],
    width: int,
    classes: int,
    batch: int,
    image: int,
    lr: float,
    precision: str,
    seed: int,
    device: str,
) -> tuple[Step, Batch]:
    """A step of SGD with momentum; `layers` is (3, 4, 6, 3) and `width` 64 in the published network."""
    with construction(seed, device):
        model = ResNet(layers, width, classes)
    prepared(model, device, precision)
    optimizer = make_optimizer("sgd", model, lr)
    data = classification_batch(batch, image, classes, device, precision)
    return make_step(model, optimizer, classification_loss, device, precision), data
