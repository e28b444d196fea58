"""What all families share: construction from a seed, made-up data, and the training step itself."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from neaptide.errors import UsageError
from neaptide.frontends.card.pretended import current_card
from neaptide.zoo.model import Batch, Step

Loss: TypeAlias = Callable[[nn.Module, Batch], Tensor]


class Sizes(SimpleNamespace):
    """The options of a model by name; those of `COMMON_DEFAULTS` and `batch`, `optimizer` and `lr` are always there."""


@dataclass(frozen=True, slots=True)
class Family:
    """Models that differ in their sizes only; `network` refuses sizes that the architecture cannot have."""

    network: Callable[[Sizes], nn.Module]
    data: Callable[[Sizes], Batch]
    loss: Loss


def build(family: Family, sizes: Sizes) -> tuple[Step, Batch]:
    """A training step and its batch. Weights, then data, are drawn from the seed.

    On `meta`, modules are made there, so that nothing is allocated. For other devices they are made on the
    CPU and moved, so that the numbers do not depend on the device. For a card that is not there they are made on
    `meta`, too, and the data on the CPU.
    """
    try:
        target = torch.device(sizes.device)
    except RuntimeError as error:
        raise UsageError(f"no such device: {sizes.device!r}", why=str(error).partition("\n")[0]) from error
    torch.manual_seed(sizes.seed)
    if target.type == "cuda" and current_card() is not None:
        target = torch.device("meta")
    with target if target.type == "meta" else nullcontext():
        model = family.network(sizes)
    if sizes.precision == "bf16_params":
        model.to(torch.bfloat16)
    if target.type not in {"cpu", "meta"}:  # there it already is; fake tensors refuse a move
        model.to(target)
    optimizer = make_optimizer(sizes.optimizer, model.train(), sizes.lr)
    data = family.data(sizes)
    return make_step(model, optimizer, family.loss, sizes.device, sizes.precision), data


def make_optimizer(name: str, model: nn.Module, lr: float) -> torch.optim.Optimizer:
    """`adamw` or `sgd` (momentum 0.9), every other flag left at its default."""
    if name == "adamw":
        return torch.optim.AdamW(model.parameters(), lr=lr)
    if name == "sgd":
        return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    raise UsageError(f"unknown optimizer {name!r}", next_step="choose one of: adamw, sgd")


def make_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, loss_of: Loss, device: str, precision: str
) -> Step:
    """A training step as one would write it by hand: a closure over the model and its optimizer."""
    if precision == "bf16":
        loss_of = _under_autocast(loss_of, device)

    def step(batch: Batch) -> Tensor:
        loss = loss_of(model, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


def _under_autocast(loss_of: Loss, device: str) -> Loss:
    # Meta tensors have no autocast of their own; entering the CPU's leaves them in fp32.
    device_type = "cpu" if device == "meta" else torch.device(device).type

    def loss_in_bf16(model: nn.Module, batch: Batch) -> Tensor:
        with torch.autocast(device_type, dtype=torch.bfloat16):
            return loss_of(model, batch)

    return loss_in_bf16


def random_normal(s: Sizes, shape: tuple[int, ...]) -> Tensor:
    """Standard normal inputs; bf16 where the parameters are. Drawn on the CPU, so equal on every device."""
    dtype = torch.bfloat16 if s.precision == "bf16_params" else torch.float32
    if torch.device(s.device).type == "meta":
        return torch.empty(shape, dtype=dtype, device=s.device)
    return torch.randn(shape).to(device=s.device, dtype=dtype)


def random_integers(s: Sizes, high: int, shape: tuple[int, ...]) -> Tensor:
    """Token ids or class labels in `[0, high)`, int64. Drawn on the CPU, so equal on every device."""
    if torch.device(s.device).type == "meta":
        return torch.empty(shape, dtype=torch.int64, device=s.device)
    return torch.randint(high, shape).to(s.device)


def image_batch(s: Sizes) -> Batch:
    """Square colour images and one label each."""
    images = random_normal(s, (s.batch, 3, s.image, s.image))
    return {"images": images, "labels": random_integers(s, s.classes, (s.batch,))}


def classification_loss(model: nn.Module, batch: Batch) -> Tensor:
    """Cross-entropy of `model(images)`: per image, or per pixel where labels are maps."""
    return nn.functional.cross_entropy(model(batch["images"]), batch["labels"])


def require_multiple(s: Sizes, what: str, of: str, divisor: Any = None) -> None:
    """Refuse sizes that the architecture cannot have; `divisor` is the value of `of`, where that is no option."""
    value, divisor = getattr(s, what), divisor or getattr(s, of)
    if value % divisor:
        raise UsageError(f"{what}={value} is not a multiple of {of} ({divisor})")
