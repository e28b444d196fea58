"""BERT (Devlin et al., 2019) with its masked-language-model head, transformers' own class, random weights."""

from __future__ import annotations

from torch import Tensor
from transformers import BertConfig, BertForMaskedLM

from neaptide.zoo.model import Batch, Step
from neaptide.zoo.training import (
    construction,
    make_optimizer,
    make_step,
    own_loss,
    prepared,
    random_integers,
    require_multiple,
)

PREDICT_EVERY = 7  # close to the published 15 % of positions, and never none of them
IGNORED = -100  # the label that cross-entropy skips


def masked_labels(tokens: Tensor) -> Tensor:
    """Labels at every seventh position, `IGNORED` elsewhere; the masked tokens themselves are not replaced."""
    labels = tokens.clone().fill_(IGNORED)
    labels[:, ::PREDICT_EVERY] = tokens[:, ::PREDICT_EVERY]
    return labels


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
    """A step of AdamW; 12 layers of width 768 is BERT-base, whose published dropout is 0.1."""
    require_multiple("width", width, "heads", heads)
    config = BertConfig(
        vocab_size=vocab,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        max_position_embeddings=seq,
        use_cache=False,
        attn_implementation="sdpa",
    )
    with construction(seed, device):
        model = BertForMaskedLM(config)
    prepared(model, device, precision)
    optimizer = make_optimizer("adamw", model, lr)
    tokens = random_integers(vocab, (batch, seq), device)
    data = {"input_ids": tokens, "labels": masked_labels(tokens)}
    return make_step(model, optimizer, own_loss, device, precision), data
