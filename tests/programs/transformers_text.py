"""Text models of Hugging Face transformers, built from tiny configurations with random weights."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from programs.program import Family, trained

FAMILY = Family("transformers: text")

VOCABULARY, LENGTH, COUNT = 32, 12, 2
# Each configuration has its own words for these, and takes the common ones for them where it has.
_TOKENS = {"vocab_size": VOCABULARY, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_WIDTH = _TOKENS | {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
_GPT = _WIDTH | {"n_positions": 16}
_SIZES = _WIDTH | {"intermediate_size": 24, "max_position_embeddings": 16}
_GROUPED = _SIZES | {"num_key_value_heads": 1}
_PAIR = _TOKENS | {"d_model": 16, "max_position_embeddings": 16, "decoder_start_token_id": 1}
_PAIR |= {
    f"{half}_{size}": n for half in ("encoder", "decoder") for size, n in (("layers", 1), ("ffn_dim", 24))
}
_PAIR |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "forced_eos_token_id": 2}
_DISTIL = _WIDTH | {"hidden_dim": 24, "max_position_embeddings": 16}

# Prefix of the classes, suffix of the model's class, and what its configuration has otherwise.
_CAUSAL: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("GPT2:LMHeadModel", _GPT),
    "gpt_neo": (
        "GPTNeo:ForCausalLM",
        _SIZES | {"num_hidden_layers": 2, "window_size": 4, "attention_types": [[["global", "local"], 1]]},
    ),
    "gptj": ("GPTJ:ForCausalLM", _GPT | {"rotary_dim": 4}),
    "gpt_neox": ("GPTNeoX:ForCausalLM", _SIZES),
    "opt": ("OPT:ForCausalLM", _SIZES | {"ffn_dim": 24, "word_embed_proj_dim": 16, "dropout": 0.1}),
    "bloom": ("Bloom:ForCausalLM", _WIDTH),
    "llama": ("Llama:ForCausalLM", _GROUPED),
    "mistral": ("Mistral:ForCausalLM", _GROUPED | {"sliding_window": 4}),
    "mixtral": ("Mixtral:ForCausalLM", _GROUPED | {"num_local_experts": 3}),
    "qwen2": ("Qwen2:ForCausalLM", _GROUPED),
    "qwen3": ("Qwen3:ForCausalLM", _GROUPED | {"head_dim": 8}),
    "gemma": ("Gemma:ForCausalLM", _GROUPED | {"head_dim": 8}),
    "gemma2": ("Gemma2:ForCausalLM", _GROUPED | {"head_dim": 8, "num_hidden_layers": 2, "sliding_window": 4}),
    "phi": ("Phi:ForCausalLM", _SIZES),
    "phi3": ("Phi3:ForCausalLM", _GROUPED),
    "falcon": ("Falcon:ForCausalLM", _SIZES | {"alibi": True}),
    "stablelm": ("StableLm:ForCausalLM", _GROUPED),
    "olmo": ("Olmo:ForCausalLM", _SIZES | {"num_key_value_heads": 2}),
    "granite": ("Granite:ForCausalLM", _GROUPED),
    "cohere": ("Cohere:ForCausalLM", _GROUPED),
    "starcoder2": ("Starcoder2:ForCausalLM", _GROUPED),
    "mamba": ("Mamba:ForCausalLM", _WIDTH | {"hidden_size": 12, "state_size": 4}),
    "rwkv": (
        "Rwkv:ForCausalLM",
        _WIDTH
        | {"hidden_size": 12, "num_hidden_layers": 2, "attention_hidden_size": 12, "context_length": 16},
    ),
    "xglm": ("XGLM:ForCausalLM", _SIZES | {"ffn_dim": 24}),
}
_MASKED = {
    "bert": ("Bert:ForMaskedLM", _SIZES),
    "roberta": ("Roberta:ForMaskedLM", _SIZES | {"max_position_embeddings": 20}),
    "albert": ("Albert:ForMaskedLM", _SIZES | {"embedding_size": 8, "num_hidden_layers": 2}),
    "distilbert": ("DistilBert:ForMaskedLM", _DISTIL),
    "electra": ("Electra:ForMaskedLM", _SIZES | {"embedding_size": 8}),
    "mpnet": ("MPNet:ForMaskedLM", _SIZES | {"max_position_embeddings": 20}),
    "deberta_v2": (
        "DebertaV2:ForMaskedLM",
        _SIZES | {"relative_attention": True, "position_buckets": 4, "pos_att_type": ["p2c", "c2p"]},
    ),
    "fnet": ("FNet:ForMaskedLM", _SIZES),
}
_LABELLED = {
    "bert_sequence": ("Bert:ForSequenceClassification", _SIZES),
    "distilbert_sequence": ("DistilBert:ForSequenceClassification", _DISTIL),
    "gpt2_sequence": ("GPT2:ForSequenceClassification", _GPT),
    "llama_sequence_told_its_problem": (
        "Llama:ForSequenceClassification",
        _SIZES | {"problem_type": "single_label_classification"},
    ),
}
_TRANSLATED = {
    "t5": (
        "T5:ForConditionalGeneration",
        _WIDTH | {"d_kv": 8, "d_ff": 24, "decoder_start_token_id": 0, "relative_attention_num_buckets": 8},
    ),
    **{name.lower(): (f"{name}:ForConditionalGeneration", _PAIR) for name in ("Bart", "MBart", "Pegasus")},
    "marian": ("Marian:MTModel", _PAIR),
    "led": (
        "LED:ForConditionalGeneration",
        _PAIR
        | {f"max_{half}_position_embeddings": 16 for half in ("encoder", "decoder")}
        | {"attention_window": 4},
    ),
}


def model_of(classes: str, options: dict[str, Any]) -> torch.nn.Module:
    """A model by `Prefix:Suffix` of its class, from a configuration."""
    import transformers  # seconds, and most programs need none of it

    prefix, suffix = classes.split(":")
    return getattr(transformers, prefix + suffix)(getattr(transformers, f"{prefix}Config")(**options)).train()


def _trained(classes: str, options: dict[str, Any], batch: dict[str, torch.Tensor]):
    model = model_of(classes, options)
    by = partial(torch.optim.AdamW, lr=1e-3)
    return trained(lambda batch: model(**batch).loss, model, by=by), batch


def ids() -> torch.Tensor:
    return torch.randint(3, VOCABULARY, (COUNT, LENGTH))


def causal(classes: str, options: dict[str, Any]):
    tokens = ids()
    return _trained(classes, options, {"input_ids": tokens, "labels": tokens.clone()})


def masked(classes: str, options: dict[str, Any]):
    tokens = ids()
    hidden = torch.rand(tokens.shape) < 0.3
    mask = torch.ones_like(tokens)
    mask[0, -3:] = 0
    batch = {"input_ids": tokens.masked_fill(hidden, 4), "labels": tokens.masked_fill(~hidden, -100)}
    return _trained(classes, options, batch if classes[:4] == "FNet" else batch | {"attention_mask": mask})


def labelled(classes: str, options: dict[str, Any]):
    return _trained(classes, options, {"input_ids": ids(), "labels": torch.randint(0, 2, (COUNT,))})


def translated(classes: str, options: dict[str, Any]):
    return _trained(classes, options, {"input_ids": ids(), "labels": ids()})


for _make, _models in (
    (causal, _CAUSAL),
    (masked, _MASKED),
    (labelled, _LABELLED),
    (translated, _TRANSLATED),
):
    for _name, (_classes, _options) in _models.items():
        FAMILY.put(_name, partial(_make, _classes, _options), "transformers", _make.__name__)


@FAMILY.add("transformers", "checkpoint")
def gpt2_with_gradient_checkpointing():
    model, tokens = model_of("GPT2:LMHeadModel", _GPT | {"num_hidden_layers": 2}), ids()
    model.gradient_checkpointing_enable()
    batch = {"input_ids": tokens, "labels": tokens.clone()}
    return trained(lambda batch: model(**batch).loss, model), batch


@FAMILY.add("transformers", "bfloat16")
def llama_in_bfloat16():
    model = model_of("Llama:ForCausalLM", _GROUPED).to(torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(tokens):
        loss = model(tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return step, ids()
