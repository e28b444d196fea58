"""Effects that depend on the call: hidden writes and dropout that is switched off."""

from __future__ import annotations

from collections.abc import Callable

from neaptide.ir.nodes import Ref
from neaptide.ir.registry import Call


def tensors_present(*positions: int) -> Callable[[Call], tuple[int | str, ...]]:
    """Overwrites those of the arguments that are given (optional tensors)."""

    def rule(call: Call) -> tuple[int | str, ...]:
        return tuple(p for p in positions if isinstance(call.arg(p), Ref))

    return rule


def running_statistics(mean: int, variance: int, training: int) -> Callable[[Call], tuple[int | str, ...]]:
    """Batch norm: running mean and variance are overwritten when there are any and the flag `training` is set.

    ATen's schemas of `native_batch_norm`, `cudnn_batch_norm` and `miopen_batch_norm` do not say so.
    """

    def rule(call: Call) -> tuple[int | str, ...]:
        if call.arg(training) is False:
            return ()
        return tuple(p for p in (mean, variance) if isinstance(call.arg(p), Ref))

    return rule


def when_flag(flag: int, name: str, *written: int | str) -> Callable[[Call], tuple[int | str, ...]]:
    """Overwrites `written` unless the flag is off; a flag that is not known counts as on."""

    def rule(call: Call) -> tuple[int | str, ...]:
        return () if call.arg(flag, name, default=False) is False else written

    return rule


def when_scaled(*gradients: int) -> Callable[[Call], tuple[int | str, ...]]:
    """Fused optimizers overwrite the gradients only when they are handed a `grad_scale`."""

    def rule(call: Call) -> tuple[int | str, ...]:
        return gradients if isinstance(call.node.kwarg("grad_scale"), Ref) else ()

    return rule


def probability_positive(position: int, name: str = "dropout_p") -> Callable[[Call], bool]:
    """Draws unless the probability is the constant 0."""

    def rule(call: Call) -> bool:
        return call.arg(position, name, default=0.0) != 0

    return rule


def flag_not_false(position: int, name: str, *, default: bool | None) -> Callable[[Call], bool]:
    """Draws unless the flag is off; None counts as on."""

    def rule(call: Call) -> bool:
        return call.arg(position, name, default=default) is not False

    return rule


def training_dropout(probability: int, train: int) -> Callable[[Call], bool]:
    """Recurrent layers: draws in training with a positive probability."""

    def rule(call: Call) -> bool:
        return call.arg(train) is not False and call.arg(probability) != 0

    return rule


def advanced_dropout_state(
    probability: int, train: int, state: int
) -> Callable[[Call], tuple[int | str, ...]]:
    """Recurrent layers of cuDNN and MIOpen: dropout in training advances the generator kept in the tensor `state`."""
    draws = training_dropout(probability, train)

    def rule(call: Call) -> tuple[int | str, ...]:
        return (state,) if isinstance(call.arg(state), Ref) and draws(call) else ()

    return rule
