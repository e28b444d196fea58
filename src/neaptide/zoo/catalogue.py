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


def _model(
    name: str,
    family: str,
    summary: str,
    shared: dict[str, Any],
    columns: str,
    *rows: tuple[Any, ...],
    precision_at_paper: str = "fp32",
) -> ZooModel:
    """One entry; `shared` holds what all sizes have in common, `rows` the `columns` of each of `SIZES`."""
    keys = (*columns.split(), "precision")
    precisions = ("fp32", "fp32", precision_at_paper)
    tables = {
        size: MappingProxyType({**shared, **dict(zip(keys, (*row, precision), strict=True))})
        for size, row, precision in zip(SIZES, rows, precisions, strict=True)
    }
    return ZooModel(name, summary, MappingProxyType(tables), partial(build_from, *family.split(".")))


_ENTRIES = (
    _model(
        "mlp",
        "classifiers.mlp",
        "Perceptron with ReLU; SGD with momentum",
        {"optimizer": "sgd", "lr": 0.01, "classes": 10},
        "layers features width batch",
        (3, 32, 32, 16),
        (24, 784, 256, 8192),
        (8, 784, 4096, 4096),
    ),
    _model(
        "resnet50",
        "classifiers.resnet",
        "ResNet-50 v1.5 (He et al. 2016), batch norm; SGD with momentum",
        {"optimizer": "sgd", "lr": 0.1},
        "layers width classes batch image",
        ((1, 1, 1, 1), 8, 10, 4, 32),
        ((3, 4, 6, 3), 32, 100, 16, 128),
        ((3, 4, 6, 3), 64, 1000, 64, 224),
    ),
    _model(
        "densenet121",
        "classifiers.densenet",
        "DenseNet-121 (Huang et al. 2017), batch norm, dense concatenation; SGD with momentum",
        {"optimizer": "sgd", "lr": 0.1},
        "layers growth classes batch image",
        ((2, 2, 2, 2), 8, 10, 4, 32),
        ((6, 12, 24, 16), 16, 100, 12, 128),
        ((6, 12, 24, 16), 32, 1000, 64, 224),
    ),
    _model(
        "unet",
        "segmentation.unet",
        "U-Net (Ronneberger et al. 2015), padded, per-pixel loss; AdamW",
        {"optimizer": "adamw", "classes": 2, "norm": "none", "lr": 1e-4},
        "depth width batch image",
        (2, 8, 2, 32),
        (4, 16, 6, 192),
        (4, 64, 32, 256),
    ),
    _model(
        "unetpp",
        "segmentation.unetpp",
        "U-Net++ (Zhou et al. 2018), nested dense skips; AdamW",
        {"optimizer": "adamw", "classes": 2, "norm": "none", "deep_supervision": False, "lr": 1e-4},
        "depth width batch image",
        (2, 8, 2, 32),
        (4, 16, 4, 128),
        (4, 32, 16, 256),
    ),
    _model(
        "unet2d",
        "diffusion.unet2d",
        "Diffusion U-Net (Ho et al. 2020), group norm, time embedding, attention, loss on noise; AdamW",
        {"optimizer": "adamw", "lr": 2e-4, "attention_level": 1},
        "multipliers width blocks groups dropout batch image",
        ((1, 2), 16, 1, 8, 0.0, 2, 16),
        ((1, 2, 2, 2), 32, 2, 8, 0.0, 16, 32),
        ((1, 2, 2, 2), 128, 2, 32, 0.1, 128, 32),
    ),
    _model(
        "vit",
        "transformers_models.vit",
        "ViT-base/16 (Dosovitskiy et al. 2021), transformers; AdamW",
        {"optimizer": "adamw", "dropout": 0.0, "lr": 1e-4},
        "layers width heads patch classes batch image",
        (2, 32, 2, 8, 10, 4, 32),
        (12, 192, 3, 16, 100, 8, 224),
        (12, 768, 12, 16, 1000, 64, 224),
    ),
    _model(
        "bert",
        "transformers_models.bert",
        "BERT-base with its masked-language-model head (Devlin et al. 2019), transformers; AdamW",
        {"optimizer": "adamw", "lr": 1e-4},
        "layers width heads vocab dropout batch seq",
        (2, 32, 2, 128, 0.0, 2, 16),
        (12, 192, 6, 4096, 0.0, 8, 192),
        (12, 768, 12, 30522, 0.1, 32, 512),
    ),
    _model(
        "gpt2",
        "transformers_models.gpt2",
        "GPT-2 124M (Radford et al. 2019), transformers; AdamW",
        {"optimizer": "adamw", "lr": 1e-4},
        "layers width heads vocab dropout batch seq",
        (2, 32, 2, 128, 0.0, 2, 16),
        (12, 192, 6, 4096, 0.0, 4, 256),
        (12, 768, 12, 50257, 0.1, 8, 1024),
    ),
    _model(
        "gptneo",
        "transformers_models.gptneo",
        "GPT-Neo-1.3B (Black et al. 2021), local and global attention, transformers; AdamW",
        {"optimizer": "adamw", "dropout": 0.0, "lr": 1e-4},
        "layers width heads vocab positions window batch seq",
        (2, 32, 2, 128, 16, 8, 2, 16),
        (8, 192, 6, 4096, 256, 64, 4, 256),
        (24, 2048, 16, 50257, 2048, 256, 32, 512),
        precision_at_paper="bf16_params",
    ),
    _model(
        "btlm",
        "language.btlm",
        "BTLM-3B (Dey et al. 2023): GPT with SwiGLU and ALiBi, without muP multipliers; AdamW",
        {"optimizer": "adamw", "lr": 1e-4},
        "layers width heads inner vocab batch seq",
        (2, 32, 2, 84, 128, 2, 16),
        (12, 192, 6, 512, 4096, 4, 256),
        (32, 2560, 32, 6826, 50257, 32, 512),
        precision_at_paper="bf16_params",
    ),
    _model(
        "llama",
        "transformers_models.llama",
        "Llama-3.2-1B shapes (grouped-query attention, RMS norm, rotary), transformers; AdamW or SGD",
        {"optimizer": "adamw", "lr": 1e-4},
        "layers width heads kv_heads inner vocab batch seq",
        (2, 32, 4, 2, 64, 128, 2, 16),
        (12, 192, 6, 2, 512, 4096, 4, 256),
        (16, 2048, 32, 8, 8192, 128256, 8, 1024),
    ),
    _model(
        "lstm",
        "language.lstm",
        "LSTM language model (Zaremba et al. 2014), nn.LSTM; SGD with momentum",
        {"optimizer": "sgd", "layers": 2},
        "width vocab dropout batch seq lr",
        (32, 128, 0.0, 2, 8, 0.1),
        (256, 4096, 0.0, 48, 70, 0.1),
        (1500, 10000, 0.65, 20, 35, 1.0),
    ),
)

MODELS: Final[Mapping[str, ZooModel]] = MappingProxyType({entry.name: entry for entry in _ENTRIES})
