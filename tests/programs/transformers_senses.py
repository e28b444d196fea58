"""Models of Hugging Face transformers for pictures, sound and time series, from tiny configurations."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from programs.program import Family, trained
from programs.transformers_text import model_of

FAMILY = Family("transformers: pictures, sound, series")

_LAYERS = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
_VIT = _LAYERS | {"image_size": 16, "patch_size": 4, "num_channels": 3}
_STAGES = {"num_channels": 3, "embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]}
_PATCHES = {"hidden_sizes": [8, 16], "depths": [1, 1], "num_encoder_blocks": 2, "patch_sizes": [3, 3]}
_SEGFORMER = _PATCHES | {"sr_ratios": [2, 1], "num_attention_heads": [1, 2], "mlp_ratios": [2, 2]}
_SEGFORMER |= {"strides": [2, 2], "decoder_hidden_size": 8}
_SWIN = {
    "image_size": 16,
    "patch_size": 2,
    "embed_dim": 8,
    "depths": [2, 1],
    "num_heads": [1, 2],
    "window_size": 4,
}
_NARROW = {"image_size": 32, "depth_multiplier": 0.1, "min_depth": 4, "depth_divisible_by": 4}
_CONVNEXT = {
    "hidden_sizes": [8, 12],
    "depths": [1, 1],
    "num_stages": 2,
    "patch_size": 2,
    "drop_path_rate": 0.1,
}
_PICTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "vit": ("ViT", _VIT),
    "deit": ("DeiT", _VIT),
    "beit": ("Beit", _VIT | {"use_relative_position_bias": True}),
    "dinov2": ("Dinov2", _VIT),
    "swin": ("Swin", _SWIN),
    "convnext": ("ConvNext", _CONVNEXT),
    "resnet": ("ResNet", _STAGES | {"layer_type": "basic"}),
    "regnet": ("RegNet", _STAGES | {"groups_width": 4}),
    "mobilenet_v2": ("MobileNetV2", _NARROW | {"last_hidden_size": 16}),
    "segformer": ("Segformer", _SEGFORMER),
    "poolformer": ("PoolFormer", _PATCHES | {"strides": [2, 2], "padding": [1, 1]}),
}


def _trained(classes: str, options: dict[str, Any], batch: Any, loss_of: Any = None):
    model = model_of(classes, options)
    loss_of = loss_of or (lambda model, batch: model(**batch).loss)
    return trained(lambda batch: loss_of(model, batch), model, by=partial(torch.optim.AdamW, lr=1e-3)), batch


def classified(prefix: str, options: dict[str, Any]):
    side = options.get("image_size", 16)
    batch = {"pixel_values": torch.randn(2, 3, side, side), "labels": torch.randint(0, 2, (2,))}
    return _trained(f"{prefix}:ForImageClassification", options | {"num_labels": 2}, batch)


for _name, (_prefix, _options) in _PICTURES.items():
    FAMILY.put(_name, partial(classified, _prefix, _options), "transformers", "pictures")


@FAMILY.add("transformers", "pictures", "segmentation")
def segformer_segmentation():
    batch = {"pixel_values": torch.randn(2, 3, 16, 16), "labels": torch.randint(0, 3, (2, 16, 16))}
    return _trained("Segformer:ForSemanticSegmentation", _SEGFORMER | {"num_labels": 3}, batch)


@FAMILY.add("transformers", "pictures", "text", "contrastive")
def clip():
    text = _LAYERS | {"vocab_size": 32, "max_position_embeddings": 16, "bos_token_id": 1, "eos_token_id": 2}
    options = {"text_config": text, "vision_config": _VIT, "projection_dim": 8}
    batch = {"input_ids": torch.randint(3, 32, (3, 8)), "pixel_values": torch.randn(3, 3, 16, 16)}
    return _trained("CLIP:Model", options, batch, lambda model, batch: model(**batch, return_loss=True).loss)


_WAVE = _LAYERS | {"conv_dim": [8, 8], "conv_kernel": [4, 3], "conv_stride": [4, 2], "vocab_size": 16}
_WAVE |= {"num_feat_extract_layers": 2, "num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 2}
_WAVE |= {"apply_spec_augment": False, "ctc_zero_infinity": True, "pad_token_id": 0, "layerdrop": 0.0}


@FAMILY.add("transformers", "sound")
def wav2vec2_sequence():
    batch = {"input_values": torch.randn(2, 160), "labels": torch.randint(0, 2, (2,))}
    return _trained("Wav2Vec2:ForSequenceClassification", _WAVE | {"classifier_proj_size": 8}, batch)


@FAMILY.add("transformers", "sound")
def hubert_features():
    def smooth(model, values):
        hidden = model(values).last_hidden_state
        return (hidden[:, 1:] - hidden[:, :-1]).square().mean()

    return _trained("Hubert:Model", _WAVE, torch.randn(2, 160), smooth)
