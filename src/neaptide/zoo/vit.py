"""ViT (Dosovitskiy et al., 2021), transformers' own class with random weights."""

from __future__ import annotations

from transformers import ViTConfig, ViTForImageClassification

from neaptide.zoo.model import Batch, Step
from neaptide.zoo.training import (
    construction,
    make_optimizer,
    make_step,
    own_loss,
    prepared,
    random_integers,
    random_normal,
    require_multiple,
)


def build(
    *,
    layers: int,
    width: int,
    heads: int,
    patch: int,
    classes: int,
    dropout: float,
    batch: int,
    image: int,
    lr: float,
    precision: str,
    seed: int,
    device: str,
) -> tuple[Step, Batch]:
    """A step of AdamW; 12 layers of width 768 with 16-pixel patches is ViT-base/16."""
    require_multiple("width", width, "heads", heads)
    require_multiple("image", image, "patch", patch)
    config = ViTConfig(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        image_size=image,
        patch_size=patch,
        num_labels=classes,
        problem_type="single_label_classification",
        attn_implementation="sdpa",
    )
    with construction(seed, device):
        model = ViTForImageClassification(config)
    prepared(model, device, precision)
    optimizer = make_optimizer("adamw", model, lr)
    data = {
        "pixel_values": random_normal((batch, 3, image, image), device, precision),
        "labels": random_integers(classes, (batch,), device),
    }
    return make_step(model, optimizer, own_loss, device, precision), data
