"""Guards: what a call must agree on with the capture, read fast at each call and compared in words on a mismatch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from neaptide.frontends.step_state import Place, StepState
from neaptide.frontends.step_trace import IGNORED_GROUP_KEYS, present_pattern

Fact = tuple[str, Any]


@dataclass(frozen=True)
class Signature:
    """Facts about one call, by name, in a fixed order.

    Attributes:
        batch: structure of the arguments, and shape, strides, dtype, device and `requires_grad` of each tensor
            leaf; other leaves by value.
        state: the same of parameters, buffers and loose tensors.
        scalars: Python numbers, strings and flags that the step can read (`training` among them).
        hyper_parameters: of each parameter group, without the learning rate, which is an input.
        modes: grad mode, autocast, default dtype, deterministic algorithms.
    """

    batch: tuple[Fact, ...]
    state: tuple[Fact, ...]
    scalars: tuple[Fact, ...]
    hyper_parameters: tuple[Fact, ...]
    modes: tuple[Fact, ...]

    def differences(self, other: Signature) -> tuple[str, ...]:
        """What differs, in words: `batch[0].shape is (3, 4), was (8, 4)`. `other` is the older one."""
        found = []
        for group in ("batch", "state", "scalars", "hyper_parameters", "modes"):
            now: Mapping[str, Any] = dict(getattr(self, group))
            then: Mapping[str, Any] = dict(getattr(other, group))
            for name in {**then, **now}:
                if name not in then:
                    found.append(f"{name} is new")
                elif name not in now:
                    found.append(f"{name} is gone")
                elif now[name] != then[name]:
                    found.append(f"{name} is {now[name]}, was {then[name]}")
        return tuple(found)


class SignatureReader:
    """Reads the signature of a call; holds on to the places so that a call costs microseconds a fact.

    Args:
        state: what the capture found.
        skipped: scalars that the capture knows to be irrelevant.
    """

    def __init__(self, state: StepState, skipped: frozenset[str] = frozenset()) -> None:
        self._state = state
        self._scalars: list[Place] = [p for p in state.scalars if p.name not in skipped]

    def read(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Signature:
        """The facts of a call with these arguments, as things stand now."""
        return Signature(
            self._batch(args, kwargs),
            tuple((slot.name, _geometry(slot.current())) for slot in self._state.tensors),
            tuple((place.name, place.get()) for place in self._scalars),
            tuple(self._hyper_parameters()),
            _modes(),
        )

    @staticmethod
    def _batch(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Fact, ...]:
        leaves, spec = pytree.tree_flatten((args, dict(kwargs)))
        facts: list[Fact] = [("batch structure", spec)]
        for position, leaf in enumerate(leaves):
            described = _geometry(leaf) if isinstance(leaf, torch.Tensor) else leaf
            facts.append((f"batch[{position}]", described))
        return tuple(facts)

    def _hyper_parameters(self) -> list[Fact]:
        facts: list[Fact] = []
        for label, optimizer in self._state.optimizers.items():
            for index, group in enumerate(optimizer.param_groups):
                facts.append((f"{label}.param_groups[{index}].params", len(group["params"])))
                facts.append((f"{label}.param_groups[{index}].lr", type(group.get("lr")).__name__))
                facts += [
                    (f"{label}.param_groups[{index}].{key}", content)
                    for key, content in group.items()
                    if key not in IGNORED_GROUP_KEYS and not isinstance(content, torch.Tensor)
                ]
        return facts


def entry_names(state: StepState) -> tuple[frozenset[str], frozenset[tuple[str, str, str]]]:
    """Which gradients and optimizer state are there now: picks the program of a step."""
    return present_pattern(state).names()


def _geometry(tensor: torch.Tensor) -> tuple[Any, ...]:
    return (
        tuple(tensor.shape),
        tensor.stride(),
        tensor.dtype,
        tensor.device.type if tensor.device.type != "meta" else "cpu",
        tensor.requires_grad,
    )


def _modes() -> tuple[Fact, ...]:
    return (
        ("grad mode", torch.is_grad_enabled()),
        ("autocast on cpu", torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu")),
        ("autocast on cuda", torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda")),
        ("default dtype", torch.get_default_dtype()),
        ("deterministic algorithms", torch.are_deterministic_algorithms_enabled()),
    )
