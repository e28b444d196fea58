"""The U-Net of denoising diffusion (Ho et al., "Denoising Diffusion Probabilistic Models", 2020).

Residual blocks with group norm and a time embedding, self-attention at one resolution, loss on the noise.
Noise and time steps are part of the batch, so a step draws random numbers only for dropout.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from neaptide.errors import UsageError
from neaptide.zoo.model import Batch
from neaptide.zoo.training import Family, Sizes, random_integers, random_normal, require_multiple

NOISE_STEPS = 1000


class ResidualBlock(nn.Module):
    """Two normalised convolutions around the projected time embedding."""

    def __init__(self, n_in: int, n_out: int, n_time: int, groups: int, dropout: float) -> None:
        super().__init__()
        self.norm1 = nn.GroupNorm(groups, n_in)
        self.conv1 = nn.Conv2d(n_in, n_out, 3, padding=1)
        self.time = nn.Linear(n_time, n_out)
        self.norm2 = nn.GroupNorm(groups, n_out)
        self.dropout = nn.Dropout(dropout)
        self.conv2 = nn.Conv2d(n_out, n_out, 3, padding=1)
        self.shortcut = nn.Conv2d(n_in, n_out, 1) if n_in != n_out else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        """Shape (batch, n_in, h, w) to (batch, n_out, h, w)."""
        y = self.conv1(nn.functional.silu(self.norm1(x)))
        y = y + self.time(nn.functional.silu(time))[:, :, None, None]
        y = self.conv2(self.dropout(nn.functional.silu(self.norm2(y))))
        out: Tensor = self.shortcut(x) + y
        return out


class AttentionBlock(nn.Module):
    """Self-attention with one head over all pixels."""

    def __init__(self, channels: int, groups: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)
        self.qkv = nn.Conv2d(channels, 3 * channels, 1)
        self.out = nn.Conv2d(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Same shape as `x`."""
        q, k, v = self.qkv(self.norm(x)).flatten(2).transpose(1, 2).unsqueeze(1).chunk(3, dim=-1)
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        attended: Tensor = self.out(y.squeeze(1).transpose(1, 2).reshape(x.shape))
        return x + attended


class DiffusionUNet(nn.Module):
    """Predicts the noise in an image; the width at each level is `width` times the entry of `multipliers`."""

    alpha_bar: Tensor

    def __init__(
        self,
        multipliers: tuple[int, ...],
        width: int,
        blocks: int,
        attention_level: int,
        groups: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.width = width
        n_time = 4 * width
        betas = torch.linspace(1e-4, 0.02, NOISE_STEPS)
        self.register_buffer("alpha_bar", torch.cumprod(1.0 - betas, 0))
        self.time = nn.Sequential(nn.Linear(width, n_time), nn.SiLU(), nn.Linear(n_time, n_time))
        self.stem = nn.Conv2d(3, width, 3, padding=1)

        def block(n_in: int, n_out: int, level: int) -> nn.ModuleList:
            parts: list[nn.Module] = [ResidualBlock(n_in, n_out, n_time, groups, dropout)]
            if level == attention_level:
                parts.append(AttentionBlock(n_out, groups))
            return nn.ModuleList(parts)

        channels = width
        skips = [width]
        self.down = nn.ModuleList()
        for level, multiplier in enumerate(multipliers):
            for _ in range(blocks):
                self.down.append(block(channels, width * multiplier, level))
                channels = width * multiplier
                skips.append(channels)
            if level + 1 < len(multipliers):
                self.down.append(nn.ModuleList([nn.Conv2d(channels, channels, 3, stride=2, padding=1)]))
                skips.append(channels)
        self.middle = nn.ModuleList(
            [
                ResidualBlock(channels, channels, n_time, groups, dropout),
                AttentionBlock(channels, groups),
                ResidualBlock(channels, channels, n_time, groups, dropout),
            ]
        )
        self.up = nn.ModuleList()
        for level, multiplier in reversed(list(enumerate(multipliers))):
            for index in range(blocks + 1):
                parts = block(channels + skips.pop(), width * multiplier, level)
                channels = width * multiplier
                if level and index == blocks:
                    parts.extend(
                        [
                            nn.Upsample(scale_factor=2, mode="nearest"),
                            nn.Conv2d(channels, channels, 3, padding=1),
                        ]
                    )
                self.up.append(parts)
        self.head = nn.Sequential(
            nn.GroupNorm(groups, channels), nn.SiLU(), nn.Conv2d(channels, 3, 3, padding=1)
        )

    def embed_time(self, steps: Tensor, dtype: torch.dtype) -> Tensor:
        """Sinusoids of the step number, then two linear layers."""
        half = self.width // 2
        rates = torch.exp(torch.arange(half, device=steps.device) * (-math.log(10000.0) / half))
        angles = steps[:, None] * rates
        embedded: Tensor = self.time(torch.cat([angles.sin(), angles.cos()], 1).to(dtype))
        return embedded

    def forward(self, images: Tensor, noise: Tensor, steps: Tensor) -> Tensor:
        """The noise as seen in `images` mixed with `noise` at the given time steps."""
        alpha = self.alpha_bar[steps][:, None, None, None]
        x = alpha.sqrt() * images + (1.0 - alpha).sqrt() * noise
        time = self.embed_time(steps, x.dtype)
        x = self.stem(x)
        skips = [x]
        for parts in self.down:
            x = _through(parts, x, time)
            skips.append(x)
        x = _through(self.middle, x, time)
        for parts in self.up:
            x = _through(parts, torch.cat([x, skips.pop()], 1), time)
        predicted: Tensor = self.head(x)
        return predicted


def _through(parts: nn.Module, x: Tensor, time: Tensor) -> Tensor:
    for part in parts.children():
        x = part(x, time) if isinstance(part, ResidualBlock) else part(x)
    return x


def noise_loss(model: nn.Module, batch: Batch) -> Tensor:
    """Mean squared error of the predicted noise."""
    return nn.functional.mse_loss(model(batch["images"], batch["noise"], batch["steps"]), batch["noise"])


def _noise_batch(s: Sizes) -> Batch:
    batch = {name: random_normal(s, (s.batch, 3, s.image, s.image)) for name in ("images", "noise")}
    return {**batch, "steps": random_integers(s, NOISE_STEPS, (s.batch,))}


def _unet2d(s: Sizes) -> nn.Module:
    """Multipliers (1, 2, 2, 2), width 128 and attention at level 1 is the CIFAR-10 network."""
    require_multiple(s, "width", "groups")
    require_multiple(s, "image", "2**(levels - 1)", 2 ** (len(s.multipliers) - 1))
    if s.attention_level >= len(s.multipliers):
        raise UsageError(f"attention_level={s.attention_level} is not one of the {len(s.multipliers)} levels")
    return DiffusionUNet(s.multipliers, s.width, s.blocks, s.attention_level, s.groups, s.dropout)


unet2d = Family(_unet2d, _noise_batch, noise_loss)
