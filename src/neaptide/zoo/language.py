"""Language models written here: BTLM and an LSTM.

BTLM (Dey et al., "BTLM-3B-8K: 7B Parameter Performance in a 3B Parameter Model", 2023) is a GPT with SwiGLU
feed-forward layers and ALiBi (Press et al., 2022) in place of position embeddings. The muP multipliers of the
published model are left out: they scale activations and change no shape. The LSTM is that of Zaremba et al.,
"Recurrent Neural Network Regularization", 2014; each step starts from a zero state.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from neaptide.zoo.model import Batch
from neaptide.zoo.training import Family, Sizes, random_integers, require_multiple


def alibi_slopes(heads: int) -> list[float]:
    """The slope of each head (Press et al., section 3): geometric, interpolated where `heads` is no power of two."""
    whole = 2 ** math.floor(math.log2(heads))
    slopes = [2.0 ** (-8.0 * (i + 1) / whole) for i in range(whole)]
    between = [2.0 ** (-4.0 * (i + 1) / whole) for i in range(0, 2 * whole, 2)]
    return slopes + between[: heads - whole]


class Attention(nn.Module):
    """Causal self-attention; the ALiBi bias, which holds the causal mask too, comes from outside."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        """Shape (batch, seq, width); `bias` has shape (1, heads, seq, seq)."""
        batch, seq, width = x.shape
        qkv = self.qkv(x).view(batch, seq, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        y = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias.to(q.dtype))
        out: Tensor = self.out(y.transpose(1, 2).reshape(batch, seq, width))
        return out


class SwiGLU(nn.Module):
    """Feed-forward layer `out(silu(gate(x)) * up(x))` (Shazeer, 2020)."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, inner)
        self.up = nn.Linear(width, inner)
        self.out = nn.Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        """Same shape as `x`."""
        y: Tensor = self.out(nn.functional.silu(self.gate(x)) * self.up(x))
        return y


class Block(nn.Module):
    """Pre-norm attention and feed-forward, each with a shortcut."""

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.feed_forward = SwiGLU(width, inner)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        """Same shape as `x`."""
        x = x + self.attention(self.norm1(x), bias)
        y: Tensor = x + self.feed_forward(self.norm2(x))
        return y


class BTLM(nn.Module):
    """The language model; input and output embeddings are one matrix."""

    slopes: Tensor

    def __init__(self, layers: int, width: int, heads: int, inner: int, vocab: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab, width)
        self.register_buffer("slopes", torch.tensor(alibi_slopes(heads)), persistent=False)
        self.blocks = nn.ModuleList(Block(width, heads, inner) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)

    def attention_bias(self, seq: int) -> Tensor:
        """`-slope * distance` for the past, minus infinity for the future; shape (1, heads, seq, seq)."""
        position = torch.arange(seq, device=self.slopes.device)
        distance = position[None, :] - position[:, None]
        bias = self.slopes[:, None, None] * distance
        return bias.masked_fill(distance > 0, float("-inf"))[None]

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores of shape (batch, seq, vocab)."""
        bias = self.attention_bias(tokens.shape[1])
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, bias)
        return nn.functional.linear(self.norm(x), self.embedding.weight)


class LSTMLanguageModel(nn.Module):
    """Embedding, stacked LSTM with dropout around each layer, linear decoder."""

    def __init__(self, vocab: int, width: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab, width)
        self.dropout = nn.Dropout(dropout)
        # nn.LSTM applies dropout between layers only, and warns where there is nothing between.
        self.lstm = nn.LSTM(width, width, layers, dropout=dropout if layers > 1 else 0.0)
        self.decoder = nn.Linear(width, vocab)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores of shape (seq, batch, vocab) for tokens of shape (seq, batch)."""
        hidden, _ = self.lstm(self.dropout(self.embedding(tokens)))
        scores: Tensor = self.decoder(self.dropout(hidden))
        return scores


def next_token_loss(model: nn.Module, batch: Batch) -> Tensor:
    """Cross-entropy of the next token, in fp32."""
    scores = model(batch["tokens"])
    return nn.functional.cross_entropy(scores.flatten(0, 1).float(), batch["targets"].flatten())


def _scored_as_they_are(model: nn.Module, batch: Batch) -> Tensor:
    return nn.functional.cross_entropy(model(batch["tokens"]).flatten(0, 1), batch["targets"].flatten())


def _batch(s: Sizes, *shape: int) -> Batch:
    return {name: random_integers(s, s.vocab, shape) for name in ("tokens", "targets")}


def _btlm(s: Sizes) -> nn.Module:
    """32 layers of width 2560, 32 heads and inner width 6826 is BTLM-3B."""
    require_multiple(s, "width", "heads")
    return BTLM(s.layers, s.width, s.heads, s.inner, s.vocab)


def _lstm(s: Sizes) -> nn.Module:
    """Two layers of 1500 units, unrolled `seq=35` steps, is the large PTB model."""
    return LSTMLanguageModel(s.vocab, s.width, s.layers, s.dropout)


btlm = Family(_btlm, lambda s: _batch(s, s.batch, s.seq), next_token_loss)
lstm = Family(_lstm, lambda s: _batch(s, s.seq, s.batch), _scored_as_they_are)
