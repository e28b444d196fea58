"""Models of Hugging Face transformers for pictures, sound and time series, from tiny configurations."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from programs.program import Family, descending

FAMILY = Family("transformers: pictures, sound, series")

_VIT = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "image_size": 16,
    "patch_size": 4,
    "num_channels": 3,
}
_STAGES = {"num_channels": 3, "embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]}
_PICTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "vit": ("ViT", _VIT),
    "deit": ("DeiT", _VIT),
    "beit": ("Beit", _VIT | {"use_relative_position_bias": True}),
    "dinov2": ("Dinov2", _VIT),
    "swin": (
        "Swin",
        {
            "image_size": 16,
            "patch_size": 2,
            "embed_dim": 8,
            "depths": [2, 1],
            "num_heads": [1, 2],
            "window_size": 4,
        },
    ),
    "convnext": (
        "ConvNext",
        {"hidden_sizes": [8, 12], "depths": [1, 1], "num_stages": 2, "patch_size": 2, "drop_path_rate": 0.1},
    ),
    "resnet": ("ResNet", _STAGES | {"layer_type": "basic"}),
    "regnet": ("RegNet", _STAGES | {"groups_width": 4}),
    "mobilenet_v2": (
        "MobileNetV2",
        {
            "image_size": 32,
            "depth_multiplier": 0.1,
            "min_depth": 4,
            "depth_divisible_by": 4,
            "last_hidden_size": 16,
        },
    ),
    "segformer": (
        "Segformer",
        {
            "num_encoder_blocks": 2,
            "depths": [1, 1],
            "sr_ratios": [2, 1],
            "hidden_sizes": [8, 16],
            "patch_sizes": [3, 3],
            "strides": [2, 2],
            "num_attention_heads": [1, 2],
            "mlp_ratios": [2, 2],
            "decoder_hidden_size": 8,
        },
    ),
    "poolformer": (
        "PoolFormer",
        {
            "hidden_sizes": [8, 16],
            "depths": [1, 1],
            "num_encoder_blocks": 2,
            "patch_sizes": [3, 3],
            "strides": [2, 2],
            "padding": [1, 1],
        },
    ),
}


def _own_loss(model: torch.nn.Module, batch: Any) -> torch.Tensor:
    return model(**batch).loss


def _trained(model: torch.nn.Module, batch: Any, loss_of=_own_loss):
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    return descending(optimizer, lambda batch: loss_of(model, batch), clears_first=True), batch


def _made(prefix: str, suffix: str, options: dict[str, Any]) -> torch.nn.Module:
    import transformers  # seconds, and most programs need none of it

    config = getattr(transformers, f"{prefix}Config")(**options)
    return getattr(transformers, prefix + suffix)(config)


def classified(prefix: str, options: dict[str, Any]):
    side = options.get("image_size", 16)
    batch = {"pixel_values": torch.randn(2, 3, side, side), "labels": torch.randint(0, 2, (2,))}
    return _trained(_made(prefix, "ForImageClassification", options | {"num_labels": 2}), batch)


for _name, (_prefix, _options) in _PICTURES.items():
    FAMILY.put(_name, partial(classified, _prefix, _options), "transformers", "pictures")


@FAMILY.add("transformers", "pictures", "segmentation")
def segformer_segmentation():
    options = _PICTURES["segformer"][1] | {"num_labels": 3}
    return _trained(
        _made("Segformer", "ForSemanticSegmentation", options),
        {"pixel_values": torch.randn(2, 3, 16, 16), "labels": torch.randint(0, 3, (2, 16, 16))},
    )


@FAMILY.add("transformers", "pictures", "text", "contrastive")
def clip():
    text = {
        "vocab_size": 32,
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 24,
        "max_position_embeddings": 16,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    model = _made("CLIP", "Model", {"text_config": text, "vision_config": _VIT, "projection_dim": 8})
    batch = {"input_ids": torch.randint(3, 32, (3, 8)), "pixel_values": torch.randn(3, 3, 16, 16)}
    return _trained(model, batch, lambda model, batch: model(**batch, return_loss=True).loss)


_WAVE = {
    "vocab_size": 16,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "conv_dim": [8, 8],
    "conv_kernel": [4, 3],
    "conv_stride": [4, 2],
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 2,
    "apply_spec_augment": False,
    "ctc_zero_infinity": True,
    "pad_token_id": 0,
    "layerdrop": 0.0,
}


@FAMILY.add("transformers", "sound")
def wav2vec2_sequence():
    batch = {"input_values": torch.randn(2, 160), "labels": torch.randint(0, 2, (2,))}
    return _trained(
        _made("Wav2Vec2", "ForSequenceClassification", _WAVE | {"classifier_proj_size": 8}), batch
    )


@FAMILY.add("transformers", "sound")
def hubert_features():
    def smooth(model, values):
        hidden = model(values).last_hidden_state
        return (hidden[:, 1:] - hidden[:, :-1]).square().mean()

    return _trained(_made("Hubert", "Model", _WAVE), torch.randn(2, 160), smooth)
