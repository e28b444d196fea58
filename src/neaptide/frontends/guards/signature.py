"""Guards: what a call must agree on with the capture, compared in words on a mismatch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from neaptide.frontends.guards.fact_words import difference, replaced, user_names
from neaptide.frontends.guards.place_facts import Fact
from neaptide.frontends.objects.same_object import without_identity
from neaptide.frontends.state.step_slots import INPUT_TYPES

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
        if not all(_is_number(now[name]) and now[name][0] is _kind(then[name]) for name in changed):
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
            now = _by_name(self.named_batch() if group == "batch" else getattr(self, group))
            then = _by_name(other.named_batch() if group == "batch" else getattr(other, group))
            for name in {**then, **now}:
                if name not in then:
                    found.append(f"{name} is new")
                elif name not in now:
                    found.append(f"{name} is gone")
                elif now[name] != then[name]:
                    found.append(difference(name, now[name], then[name]))
        return tuple(found)

    def named_batch(self) -> tuple[Fact, ...]:
        """The facts of the arguments' leaves, named as the user reaches them."""
        names = user_names(self.batch[0][1])
        return tuple((replaced(name, names), fact) for name, fact in self.batch[1:])

    def of_any_objects(self) -> Signature:
        """The facts that hold as well for other objects that the same code has made."""
        return replace(
            self,
            objects=(),
            **{
                g: tuple((n, without_identity(f)) for n, f in getattr(self, g))
                for g in ("state", "scalars", "code")
            },
        )

    def structure(self) -> str:
        """What the arguments are made of, in words."""
        return ", ".join(user_names(self.batch[0][1]).values()) or "empty"


def _is_number(fact: Any) -> bool:
    return _kind(fact) in INPUT_TYPES


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
