"""Guards: what a call must agree on with the capture, read fast at each call and compared in words on a mismatch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from neaptide.errors import CaptureError
from neaptide.frontends.fact_words import difference, replaced, user_names
from neaptide.frontends.scalars import is_scalar
from neaptide.frontends.step_slots import IGNORED_GROUP_KEYS, argument_name
from neaptide.frontends.step_state import StepState

Fact = tuple[str, Any]
_GROUPS = ("batch", "state", "scalars", "objects", "hyper_parameters", "modes")


@dataclass(frozen=True, slots=True, eq=False)
class Same:
    """Equal only to the same object."""

    item: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.item is self.item

    def __hash__(self) -> int:
        return id(self.item)


@dataclass(frozen=True)
class Signature:
    """Facts about one call, by name, in a fixed order.

    Attributes:
        batch: structure of the arguments; shape, strides, dtype, device and `requires_grad` of each tensor leaf and
            which leaves are the same tensor; other leaves by value.
        state: the same of parameters, buffers and loose tensors.
        scalars: Python numbers, strings and flags that the step can read (`training` among them), and the lengths
            of lists and dicts.
        objects: modules, optimizers, functions and containers, by identity.
        hyper_parameters: of each parameter group, without the learning rate, which is an input.
        modes: grad mode, autocast, default dtype, deterministic algorithms.
    """

    batch: tuple[Fact, ...]
    state: tuple[Fact, ...]
    scalars: tuple[Fact, ...]
    objects: tuple[Fact, ...]
    hyper_parameters: tuple[Fact, ...]
    modes: tuple[Fact, ...]

    def changed_floats(self, other: Signature) -> frozenset[str] | None:
        """Names of the Python floats that differ, when nothing else does; else None. `other` is the older one."""
        if any(getattr(self, g) != getattr(other, g) for g in _GROUPS if g not in {"batch", "scalars"}):
            return None
        now, then = dict(self.batch + self.scalars), dict(other.batch + other.scalars)
        if now.keys() != then.keys():
            return None
        changed = {name for name in now if now[name] != then[name]}
        if not all(_is_float(now[name]) and _is_float(then[name]) for name in changed):
            return None
        return frozenset(changed)

    def differences(self, other: Signature) -> tuple[str, ...]:
        """What differs, in words: `batch['x'] has shape (3, 4), was (8, 4)`. `other` is the older one."""
        found = []
        groups: tuple[str, ...] = _GROUPS
        if self.batch[0] != other.batch[0]:
            groups = _GROUPS[1:]
            found.append(f"the batch is {self.structure()}, was {other.structure()}")
        for group in groups:
            now: Mapping[str, Any] = dict(self.named_batch() if group == "batch" else getattr(self, group))
            then: Mapping[str, Any] = dict(other.named_batch() if group == "batch" else getattr(other, group))
            for name in {**then, **now}:
                if name not in then:
                    found.append(f"{name} is new")
                elif name not in now:
                    found.append(f"{name} is gone")
                elif isinstance(now[name], Same):
                    if now[name] != then[name]:
                        found.append(f"{name} is another object")
                elif now[name] != then[name]:
                    found.append(difference(name, now[name], then[name]))
        return tuple(found)

    def named_batch(self) -> tuple[Fact, ...]:
        """The facts of the arguments' leaves, named as the user reaches them."""
        names = user_names(self.batch[0][1])
        return tuple((replaced(name, names), fact) for name, fact in self.batch[1:])

    def structure(self) -> str:
        """What the arguments are made of, in words."""
        return ", ".join(user_names(self.batch[0][1]).values()) or "empty"


class SignatureReader:
    """Reads the signature of a call; holds on to the places, so that a fact costs a fraction of a microsecond.

    Args:
        state: what was found.
        changing: names of Python floats that are inputs of the program: of them only the type is a fact.
    """

    def __init__(self, state: StepState, changing: frozenset[str] = frozenset()) -> None:
        self._state = state
        self._changing = changing
        self._further = [(slot, place) for slot in state.tensors for place in slot.places[1:]]

    def read(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Signature:
        """The facts of a call with these arguments, as things stand now.

        Raises:
            CaptureError: an argument that is neither made of tensors nor a plain value.
        """
        tensors = {slot.name: slot.current() for slot in self._state.tensors if not _missing(slot.places[0])}
        return Signature(
            self._batch(args, kwargs),
            (*((name, _geometry(tensor)) for name, tensor in tensors.items()), *self._ties(tensors)),
            tuple(self._scalars()),
            tuple((p.name, None if _missing(p) else Same(p.get())) for p in self._state.objects),
            tuple(self._hyper_parameters(tensors)),
            _modes(),
        )

    def _batch(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Fact, ...]:
        leaves, spec = pytree.tree_flatten((args, dict(kwargs)))
        facts: list[Fact] = [("batch structure", spec)]
        first: dict[int, int] = {}
        for position, leaf in enumerate(leaves):
            name = argument_name(position)
            if isinstance(leaf, torch.Tensor):
                facts.append((name, _geometry(leaf)))
                earlier = first.setdefault(
                    leaf.untyped_storage().data_ptr() if leaf.numel() else -1, position
                )
                if earlier != position and leaf.numel():
                    facts.append((f"{name} shares bytes with", f"batch[{earlier}]"))
            elif is_scalar(leaf):
                facts.append((name, type(leaf) if name in self._changing else (type(leaf), leaf)))
            else:
                raise CaptureError(
                    f"argument {position} of the step is a {type(leaf).__name__}",
                    why="its contents cannot be read anew at each call",
                    next_step="pass tensors and plain values, in lists, tuples or dicts",
                )
        return tuple(facts)

    def _scalars(self) -> list[Fact]:
        facts: list[Fact] = [(f"len({name})", len(holder)) for name, holder in self._state.sized]
        for place in (*self._state.scalars, *self._state.environment):
            try:
                content = place.get()
            except (
                LookupError,
                AttributeError,
                ValueError,
            ):  # gone meanwhile: no fact, which is a difference
                continue
            known = place.name in self._changing
            facts.append((place.name, type(content) if known else (type(content), content)))
        return facts

    def _ties(self, tensors: Mapping[str, torch.Tensor]) -> list[Fact]:
        """Places that held the same tensor at the capture and do not any more."""
        return [
            (place.name, "untied")
            for slot, place in self._further
            if _missing(place) or place.get() is not tensors.get(slot.name)
        ]

    def _hyper_parameters(self, tensors: Mapping[str, torch.Tensor]) -> list[Fact]:
        facts: list[Fact] = []
        names = {id(tensor): name for name, tensor in tensors.items()}
        for label, optimizer in self._state.optimizers.items():
            for index, group in enumerate(optimizer.param_groups):
                where = f"{label}.param_groups[{index}]"
                facts.append((f"{where}.params", tuple(names.get(id(p)) for p in group["params"])))
                facts.append((f"{where}.lr", type(group.get("lr")).__name__))
                facts += [
                    (f"{where}.{key}", content)
                    for key, content in group.items()
                    if key not in IGNORED_GROUP_KEYS and not isinstance(content, torch.Tensor)
                ]
        return facts


def _is_float(fact: Any) -> bool:
    return isinstance(fact, tuple) and len(fact) == 2 and fact[0] is float


def _missing(place: Any) -> bool:
    try:
        place.get()
    except (LookupError, AttributeError, ValueError):
        return True
    return False


def _geometry(tensor: torch.Tensor) -> tuple[Any, ...]:
    device = tensor.device.type
    return (
        tuple(tensor.shape),
        tensor.stride(),
        tensor.dtype,
        device if device != "meta" else "cpu",
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
