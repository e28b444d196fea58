"""Models for the benchmarks of the `torch.compile` backend: architectures of transformers, tiny, and what they are given."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch.nn import functional

from bench_record import RESULTS, locked, recorded, save

_LM: Final = {"vocab_size": 300}
_TEXT: Final = {
    **_LM,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}
_GROUPED: Final = {**_TEXT, "num_key_value_heads": 2, "use_cache": False}
_SMALL_IMAGE: Final = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "image_size": 32,
    "patch_size": 8,
}


class WithLoss(torch.nn.Module):
    """A model of transformers with a loss on its logits, so that it returns one number."""

    def __init__(self, model: torch.nn.Module, *, is_causal: bool) -> None:
        super().__init__()
        self.model, self.is_causal = model, is_causal

    def forward(self, given: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """The loss."""
        logits = self.model(given).logits
        if self.is_causal:
            logits, target = logits[:, :-1], target[:, 1:]
        return functional.cross_entropy(logits.flatten(0, -2), target.flatten())


@dataclass(frozen=True)
class Case:
    """An architecture.

    Attributes:
        kind: `causal`, `tokens` (a class for each token), `text` (a class for each text) or `image`.
        model: its class in transformers.
        config: the class of its configuration, and what is set there.
    """

    name: str
    kind: str
    model: str
    config: str
    given: Mapping[str, Any] = field(default_factory=dict)

    def build(
        self, batch: int = 2, length: int = 16, pixels: int = 32
    ) -> tuple[Any, tuple[torch.Tensor, ...]]:
        """The model with its loss, and a batch; numbers are those of torch's generator."""
        library = importlib.import_module("transformers")
        config = getattr(library, self.config)(**self.given)
        model = WithLoss(getattr(library, self.model)(config), is_causal=self.kind == "causal")
        if self.kind == "image":
            labels = torch.randint(0, config.num_labels, (batch,))
            return model, (torch.randn(batch, 3, pixels, pixels), labels)
        tokens = torch.randint(5, config.vocab_size, (batch, length))
        labels = torch.randint(0, config.num_labels, (batch,)) if self.kind == "text" else tokens.clone()
        return model, (tokens, labels)


CASES: Final = (
    Case("gpt2", "causal", "GPT2LMHeadModel", "GPT2Config", {**_LM, "n_embd": 32, "n_layer": 2, "n_head": 4}),
    Case(
        "gpt_neo",
        "causal",
        "GPTNeoForCausalLM",
        "GPTNeoConfig",
        {
            **_LM,
            "hidden_size": 32,
            "num_layers": 2,
            "num_heads": 4,
            "attention_types": [[["global", "local"], 1]],
        },
    ),
    Case(
        "gptj",
        "causal",
        "GPTJForCausalLM",
        "GPTJConfig",
        {**_LM, "n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4},
    ),
    Case("gpt_neox", "causal", "GPTNeoXForCausalLM", "GPTNeoXConfig", _TEXT),
    Case("llama", "causal", "LlamaForCausalLM", "LlamaConfig", _GROUPED),
    Case("mistral", "causal", "MistralForCausalLM", "MistralConfig", _GROUPED),
    Case("qwen2", "causal", "Qwen2ForCausalLM", "Qwen2Config", _GROUPED),
    Case("qwen3", "causal", "Qwen3ForCausalLM", "Qwen3Config", {**_GROUPED, "head_dim": 8}),
    Case("gemma", "causal", "GemmaForCausalLM", "GemmaConfig", {**_GROUPED, "head_dim": 8}),
    Case("phi", "causal", "PhiForCausalLM", "PhiConfig", _TEXT),
    Case(
        "opt",
        "causal",
        "OPTForCausalLM",
        "OPTConfig",
        {
            **_LM,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "ffn_dim": 64,
            "word_embed_proj_dim": 32,
        },
    ),
    Case(
        "bloom",
        "causal",
        "BloomForCausalLM",
        "BloomConfig",
        {**_LM, "hidden_size": 32, "n_layer": 2, "n_head": 4},
    ),
    Case("bert", "tokens", "BertForMaskedLM", "BertConfig", _TEXT),
    Case("roberta", "tokens", "RobertaForMaskedLM", "RobertaConfig", _TEXT),
    Case("electra", "tokens", "ElectraForMaskedLM", "ElectraConfig", {**_TEXT, "embedding_size": 32}),
    Case(
        "albert", "text", "AlbertForSequenceClassification", "AlbertConfig", {**_TEXT, "embedding_size": 16}
    ),
    Case(
        "distilbert",
        "text",
        "DistilBertForSequenceClassification",
        "DistilBertConfig",
        {**_LM, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64},
    ),
    Case("vit", "image", "ViTForImageClassification", "ViTConfig", _SMALL_IMAGE),
    Case("deit", "image", "DeiTForImageClassification", "DeiTConfig", _SMALL_IMAGE),
    Case(
        "swin",
        "image",
        "SwinForImageClassification",
        "SwinConfig",
        {
            "embed_dim": 16,
            "depths": [1, 1],
            "num_heads": [2, 2],
            "image_size": 32,
            "patch_size": 4,
            "window_size": 4,
        },
    ),
    Case(
        "resnet",
        "image",
        "ResNetForImageClassification",
        "ResNetConfig",
        {"embedding_size": 16, "hidden_sizes": [16, 32, 32, 32], "depths": [1, 1, 1, 1]},
    ),
    Case(
        "regnet",
        "image",
        "RegNetForImageClassification",
        "RegNetConfig",
        {"embedding_size": 16, "hidden_sizes": [16, 32, 32, 32], "depths": [1, 1, 1, 1], "groups_width": 8},
    ),
    Case(
        "convnext",
        "image",
        "ConvNextForImageClassification",
        "ConvNextConfig",
        {"hidden_sizes": [16, 16, 32, 32], "depths": [1, 1, 1, 1]},
    ),
    Case(
        "mobilenet_v2",
        "image",
        "MobileNetV2ForImageClassification",
        "MobileNetV2Config",
        {"depth_multiplier": 0.25, "image_size": 32},
    ),
)

Build = Callable[[], tuple[Any, tuple[torch.Tensor, ...]]]


def keep(result: str, row: Mapping[str, Any], *, repeats: int, seed: int, **settings: Any) -> None:
    """Write a row into a record, in place of an older one of its case; the others stay as they are there."""
    with locked(RESULTS):
        path = RESULTS / f"{result}.json"
        there = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []
        rows = [*(one for one in there if one["name"] != row["name"]), row]
        save(result, recorded(rows, seed=seed, repeats=repeats, **settings))


def case(name: str) -> Case:
    """The case of a name."""
    return next(one for one in CASES if one.name == name)
