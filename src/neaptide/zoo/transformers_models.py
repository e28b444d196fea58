"""Models of transformers, its own classes with random weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import transformers as hf
from torch import Tensor, nn

from neaptide.zoo.model import Batch
from neaptide.zoo.training import Family, Sizes, image_batch, random_integers, require_multiple

PREDICT_EVERY = 7  # close to the published 15 % of positions, and never none of them
IGNORED = -100  # the label that cross-entropy skips
_CAUSAL: dict[str, Any] = {"bos_token_id": 0, "eos_token_id": 0, "use_cache": False}
_ENCODER = (
    "hidden_size=width num_hidden_layers=layers num_attention_heads=heads hidden_dropout_prob=dropout "
    "attention_probs_dropout_prob=dropout "
)


def token_batch(s: Sizes) -> Batch:
    """Tokens that are their own labels, as transformers' causal models take them (they shift inside)."""
    tokens = random_integers(s, s.vocab, (s.batch, s.seq))
    return {"input_ids": tokens, "labels": tokens.clone()}


def masked_batch(s: Sizes) -> Batch:
    """Labels at every seventh position, `IGNORED` elsewhere; the masked tokens themselves are not replaced."""
    tokens = random_integers(s, s.vocab, (s.batch, s.seq))
    labels = tokens.clone().fill_(IGNORED)
    labels[:, ::PREDICT_EVERY] = tokens[:, ::PREDICT_EVERY]
    return {"input_ids": tokens, "labels": labels}


def pixel_batch(s: Sizes) -> Batch:
    """Images and labels by the names that transformers gives them."""
    batch = image_batch(s)
    return {"pixel_values": batch["images"], "labels": batch["labels"]}


def own_loss(model: nn.Module, batch: Batch) -> Tensor:
    """The loss that a transformers model computes itself when it is given labels."""
    loss: Tensor = model(**batch).loss
    return loss


def _model(
    config: str,
    model: str,
    fields: str,
    *,
    multiple: tuple[str, str] | None = None,
    loss_type: str | None = None,
    **others: Any,
) -> Callable[[Sizes], Any]:
    """Builds a model from its configuration: `fields` name the option for each, `others` hold values, or make them of sizes.

    The width has to be a multiple of the heads, and so the first option of `multiple` of the second.
    """
    options = dict(field.split("=") for field in fields.split())

    def build(s: Sizes) -> Any:
        for what, of in filter(None, (("width", "heads"), multiple)):
            require_multiple(s, what, of)
        found = {field: getattr(s, option) for field, option in options.items()}
        found |= {field: value(s) if callable(value) else value for field, value in others.items()}
        made = getattr(hf, model)(getattr(hf, config)(**found))
        made.loss_type = loss_type or made.loss_type
        return made

    return build


def _attention_of_gptneo(s: Sizes) -> list[list[object]]:
    """Global attention and local windows alternate."""
    pattern: list[list[object]] = [[["global", "local"], s.layers // 2]] if s.layers > 1 else []
    return [*pattern, [["global"], 1]] if s.layers % 2 else pattern


# 12 layers of width 768 is the 124M model, whose published dropout is 0.1.
_gpt2 = _model(
    "GPT2Config",
    "GPT2LMHeadModel",
    "vocab_size=vocab n_positions=seq n_embd=width n_layer=layers n_head=heads resid_pdrop=dropout embd_pdrop=dropout "
    "attn_pdrop=dropout",
    attn_implementation="sdpa",
    loss_type="ForCausalLM",  # what transformers would fall back to, with a warning
    **_CAUSAL,
)
# 24 layers of width 2048 with 16 heads is the 1.3B model. transformers offers no `sdpa` kernel for this family, so scores
# and probabilities of every layer are kept for the backward pass.
_gptneo = _model(
    "GPTNeoConfig",
    "GPTNeoForCausalLM",
    "vocab_size=vocab hidden_size=width num_layers=layers num_heads=heads window_size=window resid_dropout=dropout "
    "embed_dropout=dropout attention_dropout=dropout",
    max_position_embeddings=lambda s: max(s.positions, s.seq),
    attention_types=_attention_of_gptneo,
    **_CAUSAL,
)
# Grouped-query attention, RMS norm and rotary positions; input and output embeddings are tied.
_llama = _model(
    "LlamaConfig",
    "LlamaForCausalLM",
    "vocab_size=vocab hidden_size=width intermediate_size=inner num_hidden_layers=layers num_attention_heads=heads "
    "num_key_value_heads=kv_heads max_position_embeddings=seq",
    multiple=("heads", "kv_heads"),
    tie_word_embeddings=True,
    attn_implementation="sdpa",
    **_CAUSAL,
)
# With the masked-language-model head; 12 layers of width 768 is BERT-base, published with dropout 0.1.
_bert = _model(
    "BertConfig",
    "BertForMaskedLM",
    _ENCODER + "vocab_size=vocab max_position_embeddings=seq",
    intermediate_size=lambda s: 4 * s.width,
    use_cache=False,
    attn_implementation="sdpa",
)
# 12 layers of width 768 with 16-pixel patches is ViT-base/16.
_vit = _model(
    "ViTConfig",
    "ViTForImageClassification",
    _ENCODER + "image_size=image patch_size=patch num_labels=classes",
    multiple=("image", "patch"),
    intermediate_size=lambda s: 4 * s.width,
    problem_type="single_label_classification",
    attn_implementation="sdpa",
)


gpt2 = Family(_gpt2, token_batch, own_loss)
gptneo = Family(_gptneo, token_batch, own_loss)
llama = Family(_llama, token_batch, own_loss)
bert = Family(_bert, masked_batch, own_loss)
vit = Family(_vit, pixel_batch, own_loss)
