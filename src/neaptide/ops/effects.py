"""Effects that depend on the call: hidden writes and dropout that is switched off."""

from __future__ import annotations

from collections.abc import Callable

from neaptide.ir.nodes import Ref
from neaptide.ir.registry import Call

Writes = Callable[[Call], tuple[int | str, ...]]
Draws = Callable[[Call], bool]


def tensors_present(*positions: int) -> Writes:
    """Overwrites those of the arguments that are given (optional tensors)."""
    return lambda call: tuple(p for p in positions if isinstance(call.arg(p), Ref))


def running_statistics(mean: int, variance: int, training: int) -> Writes:
    """Batch norm: running mean and variance are overwritten when there are any and the flag `training` is set.

    ATen's schemas of `native_batch_norm`, `cudnn_batch_norm` and `miopen_batch_norm` do not say so.
    """
    present = tensors_present(mean, variance)
    return lambda call: () if call.arg(training) is False else present(call)


def when_flag(flag: int, name: str, *written: int | str) -> Writes:
    """Overwrites `written` unless the flag is off; a flag that is not known counts as on."""
    return lambda call: () if call.arg(flag, name, default=False) is False else written


def when_scaled(*gradients: int) -> Writes:
    """Fused optimizers overwrite the gradients only when they are handed a `grad_scale`."""
    return lambda call: gradients if isinstance(call.node.kwarg("grad_scale"), Ref) else ()


def probability_positive(position: int) -> Draws:
    """Draws unless the probability is the constant 0."""
    return lambda call: call.arg(position, "dropout_p", default=0.0) != 0


def flag_not_false(position: int, name: str, *, default: bool | None) -> Draws:
    """Draws unless the flag is off; None counts as on."""
    return lambda call: call.arg(position, name, default=default) is not False


def training_dropout(probability: int, train: int) -> Draws:
    """Recurrent layers: draws in training with a positive probability."""
    return lambda call: call.arg(train) is not False and call.arg(probability) != 0


def advanced_dropout_state(probability: int, train: int, state: int) -> Writes:
    """Recurrent layers of cuDNN and MIOpen: dropout in training advances the generator kept in the tensor `state`."""
    draws = training_dropout(probability, train)
    return lambda call: (state,) if isinstance(call.arg(state), Ref) and draws(call) else ()
