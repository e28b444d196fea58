"""Networks that label every pixel: U-Net and U-Net++.

U-Net (Ronneberger et al., "U-Net: Convolutional Networks for Biomedical Image Segmentation", 2015) has padded
convolutions, so that the output has the size of the input, and no normalisation, as published
(`norm="batch"` adds batch norm after each convolution, as many later versions do).

U-Net++ (Zhou et al., "UNet++: A Nested U-Net Architecture", 2018) is a triangle of dense skip connections. Node
(level, column) reads all earlier columns of its level and the upsampled node below; nearly every activation of
a level stays alive until the last column, which makes its memory irregular.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from neaptide.errors import UsageError
from neaptide.zoo.model import Batch
from neaptide.zoo.training import (
    Family,
    Sizes,
    classification_loss,
    random_integers,
    random_normal,
    require_multiple,
)


def double_convolution(n_in: int, n_out: int, norm: str) -> nn.Sequential:
    """Two 3x3 convolutions, each with ReLU and, for `norm="batch"`, batch norm."""
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


class UNetPlusPlus(nn.Module):
    """The nested network of `depth` levels below the first; with deep supervision, one head per column."""

    def __init__(self, depth: int, width: int, classes: int, norm: str, *, deep_supervision: bool) -> None:
        super().__init__()
        self.depth = depth
        self.first_head = 1 if deep_supervision else depth
        widths = [width << level for level in range(depth + 1)]
        self.nodes = nn.ModuleDict()
        for column in range(depth + 1):
            for level in range(depth + 1 - column):
                n_in = widths[level] * column + widths[level + 1] if column else [3, *widths][level]
                self.nodes[f"{level}_{column}"] = double_convolution(n_in, widths[level], norm)
        self.pool = nn.MaxPool2d(2)
        self.up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
        self.heads = nn.ModuleList(nn.Conv2d(width, classes, 1) for _ in range(self.first_head, depth + 1))

    def forward(self, images: Tensor) -> list[Tensor]:
        """Class scores per pixel, shape (batch, classes, h, w), one entry per head."""
        x = images
        rows: list[list[Tensor]] = []
        for level in range(self.depth + 1):
            x = self.nodes[f"{level}_0"](self.pool(x) if level else x)
            rows.append([x])
        for column in range(1, self.depth + 1):
            for level in range(self.depth + 1 - column):
                below = self.up(rows[level + 1][column - 1])
                rows[level].append(self.nodes[f"{level}_{column}"](torch.cat([*rows[level], below], 1)))
        return [head(x) for head, x in zip(self.heads, rows[0][self.first_head :], strict=True)]


def mean_head_loss(model: nn.Module, batch: Batch) -> Tensor:
    """Cross-entropy per pixel, averaged over the heads."""
    losses = [nn.functional.cross_entropy(scores, batch["labels"]) for scores in model(batch["images"])]
    return torch.stack(losses).mean()


def pixel_label_batch(s: Sizes) -> Batch:
    """Square colour images and one label per pixel."""
    images = random_normal(s, (s.batch, 3, s.image, s.image))
    return {"images": images, "labels": random_integers(s, s.classes, (s.batch, s.image, s.image))}


def _unet(s: Sizes) -> nn.Module:
    """Depth 4 and width 64 is the published network."""
    require_multiple(s, "image", "2**depth", 2**s.depth)
    return UNet(s.depth, s.width, s.classes, s.norm)


def _unetpp(s: Sizes) -> nn.Module:
    """Depth 4 and width 32 is the published network."""
    require_multiple(s, "image", "2**depth", 2**s.depth)
    return UNetPlusPlus(s.depth, s.width, s.classes, s.norm, deep_supervision=s.deep_supervision)


unet = Family(_unet, pixel_label_batch, classification_loss)
unetpp = Family(_unetpp, pixel_label_batch, mean_head_loss)
