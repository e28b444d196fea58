"""Every model of the zoo with its three sizes; imports no framework.

`tiny` is for tests: a small graph, a step well under a second. `small` keeps the published depth of the
models it is used to demonstrate, with widths and batches at which activations, not weights, make the peak
and a step takes a second or so on one core. `paper` is the published network; batch and sequence or image
are those of the MAGIS evaluation (Chen et al., ASPLOS 2024) where it has the model, else those of the
model's own publication. Dropout is 0 at `tiny` and `small`, and as published at `paper`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from neaptide.zoo.model import SIZES, ZooModel, build_from


def _model(name: str, module: str, summary: str, shared: dict[str, Any], *sizes: dict[str, Any]) -> ZooModel:
    """One entry; `shared` holds what all sizes have in common, `sizes` come in the order of `SIZES`."""
    tables = {size: MappingProxyType({**shared, **own}) for size, own in zip(SIZES, sizes, strict=True)}
    return ZooModel(name, summary, MappingProxyType(tables), partial(build_from, module))


_ENTRIES = (
    _model(
        "mlp",
        "mlp",
        "Perceptron with ReLU; SGD with momentum",
        {"lr": 0.01},
        {"layers": 3, "features": 32, "width": 32, "classes": 10, "batch": 16},
        {"layers": 24, "features": 784, "width": 256, "classes": 10, "batch": 8192},
        {"layers": 8, "features": 784, "width": 4096, "classes": 10, "batch": 4096},
    ),
    _model(
        "resnet50",
        "resnet",
        "ResNet-50 v1.5 (He et al. 2016), batch norm; SGD with momentum",
        {"lr": 0.1},
        {"layers": (1, 1, 1, 1), "width": 8, "classes": 10, "batch": 4, "image": 32},
        {"layers": (3, 4, 6, 3), "width": 32, "classes": 100, "batch": 16, "image": 128},
        {"layers": (3, 4, 6, 3), "width": 64, "classes": 1000, "batch": 64, "image": 224},
    ),
    _model(
        "densenet121",
        "densenet",
        "DenseNet-121 (Huang et al. 2017), batch norm, dense concatenation; SGD with momentum",
        {"lr": 0.1},
        {"layers": (2, 2, 2, 2), "growth": 8, "classes": 10, "batch": 4, "image": 32},
        {"layers": (6, 12, 24, 16), "growth": 16, "classes": 100, "batch": 12, "image": 128},
        {"layers": (6, 12, 24, 16), "growth": 32, "classes": 1000, "batch": 64, "image": 224},
    ),
    _model(
        "unet",
        "unet",
        "U-Net (Ronneberger et al. 2015), padded, per-pixel loss; AdamW",
        {"classes": 2, "norm": "none", "lr": 1e-4},
        {"depth": 2, "width": 8, "batch": 2, "image": 32},
        {"depth": 4, "width": 16, "batch": 6, "image": 192},
        {"depth": 4, "width": 64, "batch": 32, "image": 256},
    ),
    _model(
        "unetpp",
        "unetpp",
        "U-Net++ (Zhou et al. 2018), nested dense skips; AdamW",
        {"classes": 2, "norm": "none", "deep_supervision": False, "lr": 1e-4},
        {"depth": 2, "width": 8, "batch": 2, "image": 32},
        {"depth": 4, "width": 16, "batch": 4, "image": 128},
        {"depth": 4, "width": 32, "batch": 16, "image": 256},
    ),
    _model(
        "unet2d",
        "unet2d",
        "Diffusion U-Net (Ho et al. 2020), group norm, time embedding, attention, loss on noise; AdamW",
        {"lr": 2e-4},
        {
            "multipliers": (1, 2),
            "width": 16,
            "blocks": 1,
            "attention_level": 1,
            "groups": 8,
            "dropout": 0.0,
            "batch": 2,
            "image": 16,
        },
        {
            "multipliers": (1, 2, 2, 2),
            "width": 32,
            "blocks": 2,
            "attention_level": 1,
            "groups": 8,
            "dropout": 0.0,
            "batch": 16,
            "image": 32,
        },
        {
            "multipliers": (1, 2, 2, 2),
            "width": 128,
            "blocks": 2,
            "attention_level": 1,
            "groups": 32,
            "dropout": 0.1,
            "batch": 128,
            "image": 32,
        },
    ),
    _model(
        "vit",
        "vit",
        "ViT-base/16 (Dosovitskiy et al. 2021), transformers; AdamW",
        {"dropout": 0.0, "lr": 1e-4},
        {"layers": 2, "width": 32, "heads": 2, "patch": 8, "classes": 10, "batch": 4, "image": 32},
        {"layers": 12, "width": 192, "heads": 3, "patch": 16, "classes": 100, "batch": 8, "image": 224},
        {"layers": 12, "width": 768, "heads": 12, "patch": 16, "classes": 1000, "batch": 64, "image": 224},
    ),
    _model(
        "bert",
        "bert",
        "BERT-base with its masked-language-model head (Devlin et al. 2019), transformers; AdamW",
        {"lr": 1e-4},
        {"layers": 2, "width": 32, "heads": 2, "vocab": 128, "dropout": 0.0, "batch": 2, "seq": 16},
        {"layers": 12, "width": 192, "heads": 6, "vocab": 4096, "dropout": 0.0, "batch": 8, "seq": 192},
        {"layers": 12, "width": 768, "heads": 12, "vocab": 30522, "dropout": 0.1, "batch": 32, "seq": 512},
    ),
    _model(
        "gpt2",
        "gpt2",
        "GPT-2 124M (Radford et al. 2019), transformers; AdamW",
        {"lr": 1e-4},
        {"layers": 2, "width": 32, "heads": 2, "vocab": 128, "dropout": 0.0, "batch": 2, "seq": 16},
        {"layers": 12, "width": 192, "heads": 6, "vocab": 4096, "dropout": 0.0, "batch": 4, "seq": 256},
        {"layers": 12, "width": 768, "heads": 12, "vocab": 50257, "dropout": 0.1, "batch": 8, "seq": 1024},
    ),
    _model(
        "gptneo",
        "gptneo",
        "GPT-Neo-1.3B (Black et al. 2021), local and global attention, transformers; AdamW",
        {"dropout": 0.0, "lr": 1e-4},
        {
            "layers": 2,
            "width": 32,
            "heads": 2,
            "vocab": 128,
            "positions": 16,
            "window": 8,
            "batch": 2,
            "seq": 16,
        },
        {
            "layers": 8,
            "width": 192,
            "heads": 6,
            "vocab": 4096,
            "positions": 256,
            "window": 64,
            "batch": 4,
            "seq": 256,
        },
        {
            "layers": 24,
            "width": 2048,
            "heads": 16,
            "vocab": 50257,
            "positions": 2048,
            "window": 256,
            "batch": 32,
            "seq": 512,
            "precision": "bf16_params",
        },
    ),
    _model(
        "btlm",
        "btlm",
        "BTLM-3B (Dey et al. 2023): GPT with SwiGLU and ALiBi, without muP multipliers; AdamW",
        {"lr": 1e-4},
        {"layers": 2, "width": 32, "heads": 2, "inner": 84, "vocab": 128, "batch": 2, "seq": 16},
        {"layers": 12, "width": 192, "heads": 6, "inner": 512, "vocab": 4096, "batch": 4, "seq": 256},
        {
            "layers": 32,
            "width": 2560,
            "heads": 32,
            "inner": 6826,
            "vocab": 50257,
            "batch": 32,
            "seq": 512,
            "precision": "bf16_params",
        },
    ),
    _model(
        "llama",
        "llama",
        "Llama-3.2-1B shapes (grouped-query attention, RMS norm, rotary), transformers; AdamW or SGD",
        {"optimizer": "adamw", "lr": 1e-4},
        {
            "layers": 2,
            "width": 32,
            "heads": 4,
            "kv_heads": 2,
            "inner": 64,
            "vocab": 128,
            "batch": 2,
            "seq": 16,
        },
        {
            "layers": 12,
            "width": 192,
            "heads": 6,
            "kv_heads": 2,
            "inner": 512,
            "vocab": 4096,
            "batch": 4,
            "seq": 256,
        },
        {
            "layers": 16,
            "width": 2048,
            "heads": 32,
            "kv_heads": 8,
            "inner": 8192,
            "vocab": 128256,
            "batch": 8,
            "seq": 1024,
        },
    ),
    _model(
        "lstm",
        "lstm",
        "LSTM language model (Zaremba et al. 2014), nn.LSTM; SGD with momentum",
        {},
        {"layers": 2, "width": 32, "vocab": 128, "dropout": 0.0, "batch": 2, "seq": 8, "lr": 0.1},
        {"layers": 2, "width": 256, "vocab": 4096, "dropout": 0.0, "batch": 48, "seq": 70, "lr": 0.1},
        {"layers": 2, "width": 1500, "vocab": 10000, "dropout": 0.65, "batch": 20, "seq": 35, "lr": 1.0},
    ),
)

MODELS: Final[Mapping[str, ZooModel]] = MappingProxyType({entry.name: entry for entry in _ENTRIES})
