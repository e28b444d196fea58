"""What all families share: construction from a seed, made-up data, and the training step itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TypeAlias

import torch
from torch import Tensor, nn

from neaptide.errors import UsageError
from neaptide.zoo.model import Batch, Step

Loss: TypeAlias = Callable[[nn.Module, Batch], Tensor]


@contextmanager
def construction(seed: int, device: str) -> Iterator[None]:
    """Seed the generator; on `meta`, make modules there so that nothing is allocated.

    For other devices modules are made on the CPU and moved by `prepared`, so that the numbers do not
    depend on the device.

    Raises:
        UsageError: torch knows no such device.
    """
    try:
        target = torch.device(device)
    except RuntimeError as error:
        raise UsageError(f"no such device: {device!r}", why=str(error).partition("\n")[0]) from error
    torch.manual_seed(seed)
    with target if target.type == "meta" else nullcontext():
        yield


def prepared(model: nn.Module, device: str, precision: str) -> nn.Module:
    """The model on `device`, in training mode, its parameters cast where `precision` says so."""
    if precision == "bf16_params":
        model.to(torch.bfloat16)
    if torch.device(device).type not in {"cpu", "meta"}:  # there it already is; fake tensors refuse a move
        model.to(device)
    return model.train()


def make_optimizer(name: str, model: nn.Module, lr: float) -> torch.optim.Optimizer:
    """`adamw` or `sgd` (momentum 0.9), every other flag left at its default.

    Raises:
        UsageError: another name.
    """
    if name == "adamw":
        return torch.optim.AdamW(model.parameters(), lr=lr)
    if name == "sgd":
        return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    raise UsageError(f"unknown optimizer {name!r}", next_step="choose one of: adamw, sgd")


def make_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, loss_of: Loss, device: str, precision: str
) -> Step:
    """A training step as one would write it by hand: a closure over the model and its optimizer."""
    if precision != "bf16":

        def step(batch: Batch) -> Tensor:
            loss = loss_of(model, batch)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            return loss.detach()

        return step

    # Meta tensors have no autocast of their own; entering the CPU's leaves them in fp32.
    device_type = "cpu" if device == "meta" else torch.device(device).type

    def step_bf16(batch: Batch) -> Tensor:
        with torch.autocast(device_type, dtype=torch.bfloat16):
            loss = loss_of(model, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step_bf16


def random_normal(shape: tuple[int, ...], device: str, precision: str) -> Tensor:
    """Standard normal inputs; bf16 where the parameters are. Drawn on the CPU, so equal on every device."""
    dtype = torch.bfloat16 if precision == "bf16_params" else torch.float32
    if torch.device(device).type == "meta":
        return torch.empty(shape, dtype=dtype, device=device)
    return torch.randn(shape).to(device=device, dtype=dtype)


def random_integers(high: int, shape: tuple[int, ...], device: str) -> Tensor:
    """Token ids or class labels in `[0, high)`, int64. Drawn on the CPU, so equal on every device."""
    if torch.device(device).type == "meta":
        return torch.empty(shape, dtype=torch.int64, device=device)
    return torch.randint(high, shape).to(device)


def language_batch(vocab: int, batch: int, seq: int, device: str) -> Batch:
    """Tokens that are their own labels, as transformers' causal models take them (they shift inside)."""
    tokens = random_integers(vocab, (batch, seq), device)
    return {"input_ids": tokens, "labels": tokens.clone()}


def classification_batch(batch: int, image: int, classes: int, device: str, precision: str) -> Batch:
    """Square colour images and one label each."""
    return {
        "images": random_normal((batch, 3, image, image), device, precision),
        "labels": random_integers(classes, (batch,), device),
    }


def classification_loss(model: nn.Module, batch: Batch) -> Tensor:
    """Cross-entropy of `model(images)`: per image, or per pixel where labels are maps."""
    return nn.functional.cross_entropy(model(batch["images"]), batch["labels"])


def own_loss(model: nn.Module, batch: Batch) -> Tensor:
    """The loss that a transformers model computes itself when it is given labels."""
    loss: Tensor = model(**batch).loss
    return loss


def require_multiple(what: str, value: int, of: str, divisor: int) -> None:
    """Refuse sizes that the architecture cannot have.

    Raises:
        UsageError: `value` is not a multiple of `divisor`.
    """
    if value % divisor:
        raise UsageError(f"{what}={value} is not a multiple of {of} ({divisor})")
