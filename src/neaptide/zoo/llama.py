"""Llama (Touvron et al., 2023; grouped-query attention), transformers' own class with random weights."""

from __future__ import annotations

from transformers import LlamaConfig, LlamaForCausalLM

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
    kv_heads: int,
    inner: int,
    vocab: int,
    optimizer: str,
    batch: int,
    seq: int,
    lr: float,
    precision: str,
    seed: int,
    device: str,
) -> tuple[Step, Batch]:
    """A step of AdamW, or of SGD with momentum for `optimizer="sgd"`; input and output embeddings are tied."""
    require_multiple("width", width, "heads", heads)
    require_multiple("heads", heads, "kv_heads", kv_heads)
    config = LlamaConfig(
        vocab_size=vocab,
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=seq,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=0,
        use_cache=False,
        attn_implementation="sdpa",
    )
    with construction(seed, device):
        model = LlamaForCausalLM(config)
    prepared(model, device, precision)
    data = language_batch(vocab, batch, seq, device)
    return make_step(model, make_optimizer(optimizer, model, lr), own_loss, device, precision), data
