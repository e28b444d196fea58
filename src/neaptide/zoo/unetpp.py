"""U-Net++ (Zhou et al., "UNet++: A Nested U-Net Architecture", 2018): a triangle of dense skip connections.

Node (level, column) reads all earlier columns of its level and the upsampled node below; nearly every
activation of a level stays alive until the last column, which makes its memory irregular.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from neaptide.zoo.model import Batch, Step
from neaptide.zoo.training import (
    construction,
    make_optimizer,
    make_step,
    prepared,
    require_multiple,
)
from neaptide.zoo.unet import double_convolution, segmentation_batch


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


def build(
    *,
    depth: int,
    width: int,
    classes: int,
    norm: str,
    deep_supervision: bool,
    batch: int,
    image: int,
    lr: float,
    precision: str,
    seed: int,
    device: str,
) -> tuple[Step, Batch]:
    """A step of AdamW; depth 4 and width 32 is the published network."""
    require_multiple("image", image, "2**depth", 2**depth)
    with construction(seed, device):
        model = UNetPlusPlus(depth, width, classes, norm, deep_supervision=deep_supervision)
    prepared(model, device, precision)
    optimizer = make_optimizer("adamw", model, lr)
    data = segmentation_batch(batch, image, classes, device, precision)
    return make_step(model, optimizer, mean_head_loss, device, precision), data
