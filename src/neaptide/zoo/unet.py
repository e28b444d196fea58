"""U-Net (Ronneberger et al., "U-Net: Convolutional Networks for Biomedical Image Segmentation", 2015).

Padded convolutions, so that the output has the size of the input; no normalisation, as published
(`norm="batch"` adds batch norm after each convolution, as many later versions do).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from neaptide.errors import UsageError
from neaptide.zoo.model import Batch, Step
from neaptide.zoo.training import (
    classification_loss,
    construction,
    make_optimizer,
    make_step,
    prepared,
    random_integers,
    random_normal,
    require_multiple,
)


def double_convolution(n_in: int, n_out: int, norm: str) -> nn.Sequential:
    """Two 3x3 convolutions, each with ReLU and, for `norm="batch"`, batch norm.

    Raises:
        UsageError: `norm` is neither `none` nor `batch`.
    """
    if norm not in {"none", "batch"}:
        raise UsageError(f"unknown norm {norm!r}", next_step="choose one of: none, batch")
    parts: list[nn.Module] = []
    for channels in (n_in, n_out):
        parts.append(nn.Conv2d(channels, n_out, 3, padding=1, bias=norm == "none"))
        if norm == "batch":
            parts.append(nn.BatchNorm2d(n_out))
        parts.append(nn.ReLU(inplace=True))
    return nn.Sequential(*parts)


class UNet(nn.Module):
    """`depth` halvings on the way down, as many up-convolutions back, a skip connection at each level."""

    def __init__(self, depth: int, width: int, classes: int, norm: str) -> None:
        super().__init__()
        widths = [width << level for level in range(depth + 1)]
        self.encoder = nn.ModuleList(
            double_convolution(n_in, n_out, norm) for n_in, n_out in zip([3, *widths], widths, strict=False)
        )
        self.pool = nn.MaxPool2d(2)
        self.ups = nn.ModuleList(
            nn.ConvTranspose2d(2 * n_out, n_out, 2, stride=2) for n_out in reversed(widths[:-1])
        )
        self.decoder = nn.ModuleList(
            double_convolution(2 * n_out, n_out, norm) for n_out in reversed(widths[:-1])
        )
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, images: Tensor) -> Tensor:
        """Class scores per pixel, shape (batch, classes, h, w)."""
        skips: list[Tensor] = []
        x = images
        for level, block in enumerate(self.encoder):
            x = block(self.pool(x) if level else x)
            skips.append(x)
        skips.pop()
        for up, block in zip(self.ups, self.decoder, strict=True):
            x = block(torch.cat([skips.pop(), up(x)], 1))
        scores: Tensor = self.head(x)
        return scores


def segmentation_batch(batch: int, image: int, classes: int, device: str, precision: str) -> Batch:
    """Square colour images and one label per pixel."""
    return {
        "images": random_normal((batch, 3, image, image), device, precision),
        "labels": random_integers(classes, (batch, image, image), device),
    }


def build(
    *,
    depth: int,
    width: int,
    classes: int,
    norm: str,
    batch: int,
    image: int,
    lr: float,
    precision: str,
    seed: int,
    device: str,
) -> tuple[Step, Batch]:
    """A step of AdamW; depth 4 and width 64 is the published network."""
    require_multiple("image", image, "2**depth", 2**depth)
    with construction(seed, device):
        model = UNet(depth, width, classes, norm)
    prepared(model, device, precision)
    optimizer = make_optimizer("adamw", model, lr)
    data = segmentation_batch(batch, image, classes, device, precision)
    return make_step(model, optimizer, classification_loss, device, precision), data
