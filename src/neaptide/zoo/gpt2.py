"""GPT-2 (Radford et al., 2019), transformers' own class with random weights."""

from __future__ import annotations

from transformers import GPT2Config, GPT2LMHeadModel

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
    dropout: float,
    batch: int,
    seq: int,
    lr: float,
    precision: str,
    seed: int,
    device: str,
) -> tuple[Step, Batch]:
    """A step of AdamW; 12 layers of width 768 is the 124M model, whose published dropout is 0.1."""
    require_multiple("width", width, "heads", heads)
    config = GPT2Config(
        vocab_size=vocab,
        n_positions=seq,
        n_embd=width,
        n_layer=layers,
        n_head=heads,
        resid_pdrop=dropout,
        embd_pdrop=dropout,
        attn_pdrop=dropout,
        bos_token_id=0,
        eos_token_id=0,
        use_cache=False,
        attn_implementation="sdpa",
    )
    with construction(seed, device):
        model = GPT2LMHeadModel(config)
    model.loss_type = "ForCausalLM"  # what transformers would fall back to, with a warning
    prepared(model, device, precision)
    optimizer = make_optimizer("adamw", model, lr)
    data = language_batch(vocab, batch, seq, device)
    return make_step(model, optimizer, own_loss, device, precision), data
