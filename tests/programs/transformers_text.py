"""Text models of Hugging Face transformers, built from tiny configurations with random weights."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from programs.program import Family, descending

FAMILY = Family("transformers: text")

VOCABULARY, LENGTH, COUNT = 32, 12, 2
_SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 16,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_GPT = {
    "vocab_size": VOCABULARY,
    "n_embd": 16,
    "n_layer": 1,
    "n_head": 2,
    "n_positions": 16,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_SEQ2SEQ = {
    "vocab_size": VOCABULARY,
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": 16,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
    "forced_eos_token_id": 2,
}

# Prefix of the classes, suffix of the model's class, and what its configuration has otherwise.
_CAUSAL: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("GPT2LMHead", _GPT),
    "gpt_neo": (
        "GPTNeo:ForCausalLM",
        {
            "vocab_size": VOCABULARY,
            "hidden_size": 16,
            "num_layers": 2,
            "num_heads": 2,
            "max_position_embeddings": 16,
            "window_size": 4,
            "attention_types": [[["global", "local"], 1]],
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
    ),
    "gptj": ("GPTJ:ForCausalLM", _GPT | {"rotary_dim": 4}),
    "gpt_neox": ("GPTNeoX:ForCausalLM", _SIZES),
    "opt": ("OPT:ForCausalLM", _SIZES | {"ffn_dim": 24, "word_embed_proj_dim": 16, "dropout": 0.1}),
    "bloom": (
        "Bloom:ForCausalLM",
        {"vocab_size": VOCABULARY, "hidden_size": 16, "n_layer": 1, "n_head": 2, "pad_token_id": 0},
    ),
    "llama": ("Llama:ForCausalLM", _SIZES | {"num_key_value_heads": 1}),
    "mistral": ("Mistral:ForCausalLM", _SIZES | {"num_key_value_heads": 1, "sliding_window": 4}),
    "mixtral": ("Mixtral:ForCausalLM", _SIZES | {"num_key_value_heads": 1, "num_local_experts": 3}),
    "qwen2": ("Qwen2:ForCausalLM", _SIZES | {"num_key_value_heads": 1}),
    "qwen3": ("Qwen3:ForCausalLM", _SIZES | {"num_key_value_heads": 1, "head_dim": 8}),
    "gemma": ("Gemma:ForCausalLM", _SIZES | {"num_key_value_heads": 1, "head_dim": 8}),
    "gemma2": (
        "Gemma2:ForCausalLM",
        _SIZES | {"num_key_value_heads": 1, "head_dim": 8, "num_hidden_layers": 2, "sliding_window": 4},
    ),
    "phi": ("Phi:ForCausalLM", _SIZES),
    "phi3": ("Phi3:ForCausalLM", _SIZES | {"num_key_value_heads": 1}),
    "falcon": ("Falcon:ForCausalLM", _SIZES | {"alibi": True}),
    "stablelm": ("StableLm:ForCausalLM", _SIZES | {"num_key_value_heads": 1}),
    "olmo": ("Olmo:ForCausalLM", _SIZES | {"num_key_value_heads": 2}),
    "granite": ("Granite:ForCausalLM", _SIZES | {"num_key_value_heads": 1}),
    "cohere": ("Cohere:ForCausalLM", _SIZES | {"num_key_value_heads": 1}),
    "starcoder2": ("Starcoder2:ForCausalLM", _SIZES | {"num_key_value_heads": 1}),
    "mamba": (
        "Mamba:ForCausalLM",
        {
            "vocab_size": VOCABULARY,
            "hidden_size": 12,
            "num_hidden_layers": 1,
            "state_size": 4,
            "pad_token_id": 0,
        },
    ),
    "rwkv": (
        "Rwkv:ForCausalLM",
        {
            "vocab_size": VOCABULARY,
            "hidden_size": 12,
            "num_hidden_layers": 2,
            "attention_hidden_size": 12,
            "context_length": 16,
        },
    ),
    "xglm": (
        "XGLM:ForCausalLM",
        {
            "vocab_size": VOCABULARY,
            "d_model": 16,
            "num_layers": 1,
            "attention_heads": 2,
            "ffn_dim": 24,
            "max_position_embeddings": 16,
        },
    ),
}
_MASKED = {
    "bert": ("Bert:ForMaskedLM", _SIZES),
    "roberta": ("Roberta:ForMaskedLM", _SIZES | {"max_position_embeddings": 20}),
    "albert": ("Albert:ForMaskedLM", _SIZES | {"embedding_size": 8, "num_hidden_layers": 2}),
    "distilbert": (
        "DistilBert:ForMaskedLM",
        {
            "vocab_size": VOCABULARY,
            "dim": 16,
            "n_layers": 1,
            "n_heads": 2,
            "hidden_dim": 24,
            "max_position_embeddings": 16,
        },
    ),
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
    "distilbert_sequence": ("DistilBert:ForSequenceClassification", _MASKED["distilbert"][1]),
    "gpt2_sequence": ("GPT2:ForSequenceClassification", _GPT | {"pad_token_id": 0}),
    "llama_sequence_told_its_problem": (
        "Llama:ForSequenceClassification",
        _SIZES | {"problem_type": "single_label_classification"},
    ),
}
_ENCODER_DECODER = {
    "t5": (
        "T5:ForConditionalGeneration",
        {
            "vocab_size": VOCABULARY,
            "d_model": 16,
            "d_kv": 8,
            "d_ff": 24,
            "num_layers": 1,
            "num_heads": 2,
            "decoder_start_token_id": 0,
            "relative_attention_num_buckets": 8,
        },
    ),
    "bart": ("Bart:ForConditionalGeneration", _SEQ2SEQ),
    "mbart": ("MBart:ForConditionalGeneration", _SEQ2SEQ),
    "pegasus": ("Pegasus:ForConditionalGeneration", _SEQ2SEQ),
    "marian": ("Marian:MTModel", _SEQ2SEQ),
    "led": (
        "LED:ForConditionalGeneration",
        _SEQ2SEQ
        | {
            "attention_window": 4,
            "max_encoder_position_embeddings": 16,
            "max_decoder_position_embeddings": 16,
        },
    ),
}


def _model(classes: str, options: dict[str, Any]) -> torch.nn.Module:
    import transformers  # seconds, and most programs need none of it

    prefix, _, suffix = classes.partition(":")
    if not suffix:
        prefix, suffix = "GPT2", "LMHeadModel"
    config = getattr(transformers, f"{prefix}Config")(**options)
    return getattr(transformers, prefix + suffix)(config)


def _trained(classes: str, options: dict[str, Any], batch: dict[str, torch.Tensor]):
    model = _model(classes, options).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    return descending(optimizer, lambda batch: model(**batch).loss), batch


def _ids() -> torch.Tensor:
    return torch.randint(3, VOCABULARY, (COUNT, LENGTH))


def causal(classes: str, options: dict[str, Any]):
    ids = _ids()
    return _trained(classes, options, {"input_ids": ids, "labels": ids.clone()})


def masked(classes: str, options: dict[str, Any]):
    ids = _ids()
    hidden = torch.rand(ids.shape) < 0.3
    mask = torch.ones_like(ids)
    mask[0, -3:] = 0
    return _trained(
        classes,
        options,
        {
            "input_ids": ids.masked_fill(hidden, 4),
            "attention_mask": mask,
            "labels": ids.masked_fill(~hidden, -100),
        },
    )


def without_mask(classes: str, options: dict[str, Any]):
    step, batch = masked(classes, options)
    del batch["attention_mask"]
    return step, batch


def labelled(classes: str, options: dict[str, Any]):
    return _trained(classes, options, {"input_ids": _ids(), "labels": torch.randint(0, 2, (COUNT,))})


def translated(classes: str, options: dict[str, Any]):
    return _trained(classes, options, {"input_ids": _ids(), "labels": _ids()})


for _makes, _models in (
    (causal, _CAUSAL),
    (masked, _MASKED),
    (labelled, _LABELLED),
    (translated, _ENCODER_DECODER),
):
    for _name, (_classes, _options) in _models.items():
        FAMILY.put(
            _name,
            partial(without_mask if _name == "fnet" else _makes, _classes, _options),
            "transformers",
            _makes.__name__,
        )


@FAMILY.add("transformers", "checkpoint")
def gpt2_with_gradient_checkpointing():
    step, batch = causal("GPT2LMHead", _GPT | {"n_layer": 2})
    model = step.__closure__[step.__code__.co_freevars.index("model")].cell_contents
    model.gradient_checkpointing_enable()
    return step, batch


@FAMILY.add("transformers", "bfloat16")
def llama_in_bfloat16():
    model = _model("Llama:ForCausalLM", _SIZES | {"num_key_value_heads": 1}).to(torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(ids):
        loss = model(ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return step, _ids()
