"""GPT-Neo (Black et al., 2021), transformers' own class with random weights.

Layers alternate between global attention and attention to a local window. transformers offers no `sdpa`
kernel for this family, so scores and probabilities of every layer are kept for the backward pass.
"""

from __future__ import annotations

from transformers import GPTNeoConfig, GPTNeoForCausalLM

from neaptide.zoo.model import Batch, Step
from neaptide.zoo.training import (
    construction,
    language_batch,
    make_optimizer,
    make_step,
    own_loss,
    prepared,
    require_multiple,
)


def build(
    *,
    layers: int,
    width: int,
    heads: int,
    vocab: int,
    positions: int,
    window: int,
    dropout: float,
    batch: int,
    seq: int,
    lr: float,
    precision: str,
    seed: int,
    device: str,
) -> tuple[Step, Batch]:
    """A step of AdamW; 24 layers of width 2048 with 16 heads is the 1.3B model."""
    require_multiple("width", width, "heads", heads)
    pattern: list[list[object]] = [[["global", "local"], layers // 2]] if layers > 1 else []
    if layers % 2:
        pattern.append([["global"], 1])
    config = GPTNeoConfig(
        vocab_size=vocab,
        max_position_embeddings=max(positions, seq),
        hidden_size=width,
        num_layers=layers,
        num_heads=heads,
        attention_types=pattern,
        window_size=window,
        resid_dropout=dropout,
        embed_dropout=dropout,
        attention_dropout=dropout,
        bos_token_id=0,
        eos_token_id=0,
        use_cache=False,
    )
    with construction(seed, device):
        model = GPTNeoForCausalLM(config)
    prepared(model, device, precision)
    optimizer = make_optimizer("adamw", model, lr)
    data = language_batch(vocab, batch, seq, device)
    return make_step(model, optimizer, own_loss, device, precision), data
