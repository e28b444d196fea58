"""Models of transformers, its own classes with random weights."""

from __future__ import annotations

from typing import Any

import transformers as hf
from torch import Tensor, nn

from neaptide.zoo.model import Batch
from neaptide.zoo.training import Family, Sizes, image_batch, random_integers, require_multiple

PREDICT_EVERY = 7  # close to the published 15 % of positions, and never none of them
IGNORED = -100  # the label that cross-entropy skips


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


def _gpt2(s: Sizes) -> Any:
    """12 layers of width 768 is the 124M model, whose published dropout is 0.1."""
    require_multiple(s, "width", "heads")
    config = hf.GPT2Config(
        vocab_size=s.vocab,
        n_positions=s.seq,
        n_embd=s.width,
        n_layer=s.layers,
        n_head=s.heads,
        resid_pdrop=s.dropout,
        embd_pdrop=s.dropout,
        attn_pdrop=s.dropout,
        bos_token_id=0,
        eos_token_id=0,
        use_cache=False,
        attn_implementation="sdpa",
    )
    model = hf.GPT2LMHeadModel(config)
    model.loss_type = "ForCausalLM"  # what transformers would fall back to, with a warning
    return model


def _gptneo(s: Sizes) -> Any:
    """24 layers of width 2048 with 16 heads is the 1.3B model; global attention and local windows alternate.

    transformers offers no `sdpa` kernel for this family, so scores and probabilities of every layer are kept
    for the backward pass.
    """
    require_multiple(s, "width", "heads")
    pattern: list[list[object]] = [[["global", "local"], s.layers // 2]] if s.layers > 1 else []
    if s.layers % 2:
        pattern.append([["global"], 1])
    config = hf.GPTNeoConfig(
        vocab_size=s.vocab,
        max_position_embeddings=max(s.positions, s.seq),
        hidden_size=s.width,
        num_layers=s.layers,
        num_heads=s.heads,
        attention_types=pattern,
        window_size=s.window,
        resid_dropout=s.dropout,
        embed_dropout=s.dropout,
        attention_dropout=s.dropout,
        bos_token_id=0,
        eos_token_id=0,
        use_cache=False,
    )
    return hf.GPTNeoForCausalLM(config)


def _llama(s: Sizes) -> Any:
    """Grouped-query attention, RMS norm and rotary positions; input and output embeddings are tied."""
    require_multiple(s, "width", "heads")
    require_multiple(s, "heads", "kv_heads")
    config = hf.LlamaConfig(
        vocab_size=s.vocab,
        hidden_size=s.width,
        intermediate_size=s.inner,
        num_hidden_layers=s.layers,
        num_attention_heads=s.heads,
        num_key_value_heads=s.kv_heads,
        max_position_embeddings=s.seq,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=0,
        use_cache=False,
        attn_implementation="sdpa",
    )
    return hf.LlamaForCausalLM(config)


def _encoder(s: Sizes) -> dict[str, object]:
    """What BERT and ViT call alike."""
    require_multiple(s, "width", "heads")
    return {
        "hidden_size": s.width,
        "num_hidden_layers": s.layers,
        "num_attention_heads": s.heads,
        "intermediate_size": 4 * s.width,
        "hidden_dropout_prob": s.dropout,
        "attention_probs_dropout_prob": s.dropout,
        "attn_implementation": "sdpa",
    }


def _bert(s: Sizes) -> Any:
    """With the masked-language-model head; 12 layers of width 768 is BERT-base, published with dropout 0.1."""
    config = hf.BertConfig(vocab_size=s.vocab, max_position_embeddings=s.seq, use_cache=False, **_encoder(s))
    return hf.BertForMaskedLM(config)


def _vit(s: Sizes) -> Any:
    """12 layers of width 768 with 16-pixel patches is ViT-base/16."""
    require_multiple(s, "image", "patch")
    config = hf.ViTConfig(
        image_size=s.image,
        patch_size=s.patch,
        num_labels=s.classes,
        problem_type="single_label_classification",
        **_encoder(s),
    )
    return hf.ViTForImageClassification(config)


gpt2 = Family(_gpt2, token_batch, own_loss)
gptneo = Family(_gptneo, token_batch, own_loss)
llama = Family(_llama, token_batch, own_loss)
bert = Family(_bert, masked_batch, own_loss)
vit = Family(_vit, pixel_batch, own_loss)
