"""Guards: what a call must agree on with the capture, compared fast at each call and in words on a mismatch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from neaptide.errors import CaptureError
from neaptide.frontends.guards.code_facts import CodeFacts
from neaptide.frontends.guards.fact_words import difference, replaced, user_names
from neaptide.frontends.guards.mode_facts import modes
from neaptide.frontends.guards.place_facts import Fact, PlaceFacts
from neaptide.frontends.guards.size_guard import SizeGuard
from neaptide.frontends.guards.tensor_facts import GroupFacts, TensorFacts, geometry, hooks_of, storage_of
from neaptide.frontends.objects.batch_objects import Unseen, flatten
from neaptide.frontends.objects.values import exact, is_scalar, without_identity
from neaptide.frontends.state.state_refusals import refuse_wrapper
from neaptide.frontends.state.step_slots import INPUT_TYPES, argument_name
from neaptide.frontends.state.step_state import StepState

_GROUPS = ("batch", "state", "scalars", "objects", "code", "hyper_parameters", "modes")


@dataclass(frozen=True)
class Signature:
    """Facts about one call, by name, in a fixed order.

    Attributes:
        batch: structure of the arguments; shape, strides, dtype, device, type and `requires_grad` of each tensor
            leaf, and which leaves share bytes; other leaves by value.
        state: the same of parameters, buffers and loose tensors, and their hooks.
        scalars: Python numbers, strings and flags that the step can read (`training` among them), the lengths and
            orders of lists and dicts, and the contents of sets and arrays.
        objects: modules, optimizers, functions and containers, by identity.
        code: hooks, methods, attributes that hide methods, the types of objects, functions.
        hyper_parameters: of each parameter group, without the learning rate, which is an input.
        modes: grad mode, autocast, default dtype, default device and what else acts on a whole thread.
    """

    batch: tuple[Fact, ...]
    state: tuple[Fact, ...]
    scalars: tuple[Fact, ...]
    objects: tuple[Fact, ...]
    code: tuple[Fact, ...]
    hyper_parameters: tuple[Fact, ...]
    modes: tuple[Fact, ...]

    def changed_numbers(self, other: Signature) -> frozenset[str] | None:
        """Names of the Python numbers that differ, when nothing else does; else None. `other` is the older one."""
        held = {"batch", "scalars", "hyper_parameters"}
        if any(getattr(self, g) != getattr(other, g) for g in _GROUPS if g not in held):
            return None
        now = dict(self.batch + self.scalars + self.hyper_parameters)
        then = dict(other.batch + other.scalars + other.hyper_parameters)
        if now.keys() != then.keys():
            return None
        changed = {name for name in now if now[name] != then[name]}
        if not all(_kind(now[name]) in INPUT_TYPES and now[name][0] is _kind(then[name]) for name in changed):
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
            now, then = self._group_by_name(group), other._group_by_name(group)
            for name in {**then, **now}:
                if name not in then:
                    found.append(f"{name} is new")
                elif name not in now:
                    found.append(f"{name} is gone")
                elif now[name] != then[name]:
                    found.append(difference(name, now[name], then[name]))
        return tuple(found)

    def _group_by_name(self, group: str) -> dict[str, Any]:
        return _by_name(self.named_batch() if group == "batch" else getattr(self, group))

    def named_batch(self) -> tuple[Fact, ...]:
        """The facts of the arguments' leaves, named as the user reaches them."""
        names = user_names(self.batch[0][1])
        return tuple((replaced(name, names), fact) for name, fact in self.batch[1:])

    def of_any_objects(self) -> Signature:
        """The facts that hold as well for other objects that the same code has made."""
        groups = {
            group: tuple((name, without_identity(fact)) for name, fact in getattr(self, group))
            for group in ("state", "scalars", "code")
        }
        return replace(self, objects=(), **groups)

    def structure(self) -> str:
        """What the arguments are made of, in words."""
        return ", ".join(user_names(self.batch[0][1]).values()) or "empty"


def _kind(fact: Any) -> Any:
    """The type of a plain value, as it stands in its fact."""
    return fact[0] if isinstance(fact, tuple) and len(fact) == 2 else None


def _by_name(facts: Iterable[Fact]) -> dict[str, Any]:
    """Facts by name; things that happen to be called alike are numbered."""
    seen: Counter[str] = Counter()
    found = {}
    for name, fact in facts:
        seen[name] += 1
        found[name if seen[name] == 1 else f"{name} ({seen[name]})"] = fact
    return found


class SignatureReader:
    """Reads the signature of a call; holds on to the places, so that a fact costs a fraction of a microsecond.

    Of Python numbers in `changing`, which are inputs of the program, only the type is a fact, as of what the step does not read.
    `sizes` tells of dims that may vary.
    """

    def __init__(
        self, state: StepState, changing: frozenset[str] = frozenset(), sizes: SizeGuard | None = None
    ) -> None:
        changing |= state.counted
        self._changing = changing | {argument_name(position) for position in state.unread_arguments}
        self._sizes = sizes
        self._tensors = TensorFacts(state)
        self._places = PlaceFacts(state, changing)
        self._code = CodeFacts(state)
        self._groups = GroupFacts(state, self._tensors, changing)
        self._parts = (self._tensors, self._places, self._code, self._groups)
        self._agreed: Signature | None = None

    def read(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Signature:
        """All facts of a call with these arguments, as things stand now."""
        self._tensors.arm()
        return Signature(
            self._batch(args, kwargs),
            tuple(self._tensors.read()),
            tuple(self._places.scalars()),
            tuple(self._places.objects()),
            tuple(self._code.read()),
            tuple(self._groups.read()),
            modes(),
        )

    def agrees(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], signature: Signature) -> bool:
        """Whether a call has the facts of a signature; reads in full only where something looks different."""
        if (
            self._agreed is signature
            and all(part.unchanged() for part in self._parts)
            and modes() == signature.modes
        ):
            return self._batch(args, kwargs) == signature.batch
        if self.read(args, kwargs) != signature:
            self._agreed = None
            return False
        self._agreed = signature
        for part in self._parts:
            part.arm()
        return True

    def _batch(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Fact, ...]:
        leaves, spec = flatten((args, dict(kwargs)))
        facts: list[Fact] = [("batch structure", spec)]
        first: dict[int, int] = {}
        of_state = self._tensors.named_storages()
        sizes = self._sizes
        binding = {} if sizes is None else sizes.binding(leaves)
        for position, leaf in enumerate(leaves):
            name = argument_name(position)
            if isinstance(leaf, torch.Tensor):
                refuse_wrapper(leaf, name)
                own = geometry(leaf) if sizes is None else sizes.geometry(position, leaf, binding)
                facts.append((name, own))
                if leaf.requires_grad:
                    facts += hooks_of(leaf, name)
                storage = storage_of(leaf)
                earlier = first.setdefault(storage, position)
                if storage in of_state:
                    facts.append((f"{name} shares bytes with", of_state[storage]))
                elif earlier != position:
                    facts.append((f"{name} shares bytes with", f"batch[{earlier}]"))
            elif is_scalar(leaf):
                facts.append((name, type(leaf) if name in self._changing else (type(leaf), exact(leaf))))
            elif type(leaf) is Unseen:
                facts.append((name, type(leaf.content)))
            else:
                raise CaptureError(
                    f"argument {position} of the step is a {type(leaf).__name__}",
                    why="its contents cannot be read anew at each call",
                    next_step="pass tensors and plain values, in lists, tuples, dicts, other mappings or dataclasses",
                )
        return tuple(facts) if sizes is None else (*facts, *sizes.facts(binding))
