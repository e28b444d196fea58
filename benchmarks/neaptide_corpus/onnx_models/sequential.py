"""Small transformers and recurrent networks as PyTorch modules, for export."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

WORDS = 100
"""Size of the vocabularies; token ids are below it."""


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int, *, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.value, self.out = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        query, key, value = (
            layer(x).view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        y = functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class _Block(nn.Module):
    """Attention and a feed-forward part; `first` puts the norms before them (GPT, ViT), else after (BERT)."""

    def __init__(self, width: int, heads: int, *, causal: bool = False, first: bool = True) -> None:
        super().__init__()
        self.first = first
        self.attention = _Attention(width, heads, causal=causal)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for norm, part in zip(self.norms, (self.attention, self.feed), strict=True):
            x = x + part(norm(x)) if self.first else norm(x + part(x))
        return x


class VisionTransformer(nn.Module):
    """Dosovitskiy et al., ICLR 2021, for 3x64x64 in patches of 8."""

    def __init__(self, width: int = 96, depth: int = 2) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, 8)
        self.token = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.places = nn.Parameter(torch.randn(1, 65, width) * 0.02)
        self.blocks = nn.Sequential(*(_Block(width, 4) for _ in range(depth)), nn.LayerNorm(width))
        self.out = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.out(self.blocks(x)[:, 0])


class Bert(nn.Module):
    """Devlin et al., 2019, with words and segments as inputs."""

    def __init__(self, width: int = 64, depth: int = 2, length: int = 64) -> None:
        super().__init__()
        self.words, self.segments = nn.Embedding(WORDS, width), nn.Embedding(2, width)
        self.places = nn.Parameter(torch.randn(1, length, width) * 0.02)
        self.norm = nn.LayerNorm(width)
        self.blocks = nn.Sequential(*(_Block(width, 4, first=False) for _ in range(depth)))
        self.pool, self.out = nn.Linear(width, width), nn.Linear(width, 2)

    def forward(self, words: Tensor, segments: Tensor) -> Tensor:
        x = self.norm(self.words(words) + self.segments(segments) + self.places)
        return self.out(torch.tanh(self.pool(self.blocks(x)[:, 0])))


class Gpt(nn.Module):
    """Radford et al., 2019: causal attention, logits for each place."""

    def __init__(self, width: int = 64, depth: int = 2, length: int = 64) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.places = nn.Parameter(torch.randn(1, length, width) * 0.02)
        self.blocks = nn.Sequential(
            *(_Block(width, 4, causal=True) for _ in range(depth)), nn.LayerNorm(width)
        )

    def forward(self, words: Tensor) -> Tensor:
        return self.blocks(self.words(words) + self.places) @ self.words.weight.t()


class Mixer(nn.Module):
    """Tolstikhin et al., NeurIPS 2021, for 3x64x64 in patches of 8."""

    def __init__(self, width: int = 64, depth: int = 2) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, 8)
        self.across = nn.ModuleList(self._part(64, 128) for _ in range(depth))
        self.along = nn.ModuleList(self._part(width, 4 * width) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * depth))
        self.out = nn.Linear(width, 10)

    def _part(self, width: int, inner: int) -> nn.Module:
        return nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width))

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        for i, (across, along) in enumerate(zip(self.across, self.along, strict=True)):
            x = x + across(self.norms[2 * i](x).transpose(1, 2)).transpose(1, 2)
            x = x + along(self.norms[2 * i + 1](x))
        return self.out(x.mean(1))


class Recurrent(nn.Module):
    """Two recurrent layers on sequences of 32 vectors, and a dense layer on the last result."""

    def __init__(self, kind: type[nn.LSTM | nn.GRU], width: int = 64) -> None:
        super().__init__()
        self.cells = kind(40, width, num_layers=2, batch_first=True)
        self.out = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        made, _ = self.cells(x)
        return self.out(made[:, -1])


class _TemporalBlock(nn.Module):
    def __init__(self, channels: int, out: int, dilation: int) -> None:
        super().__init__()
        self.reach = 2 * dilation
        self.conv = nn.Conv1d(channels, out, 3, dilation=dilation)
        self.skip = nn.Conv1d(channels, out, 1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.conv(functional.pad(x, (self.reach, 0))) + self.skip(x))


def temporal_convolutions() -> nn.Module:
    """Bai et al., 2018: dilated causal convolutions on sequences of 256."""
    blocks = (_TemporalBlock(8 if i == 0 else 32, 32, 1 << i) for i in range(4))
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(32, 6))
