"""Which values a call differs in from a capture, when all of them may be of a kind that the step does not read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from neaptide.frontends.guards.signature import Signature
from neaptide.frontends.objects.places import Place, read, root_of
from neaptide.frontends.objects.unread import UnreadNames, may_be_unread
from neaptide.frontends.objects.values import Same
from neaptide.frontends.programs.captured import CapturedStep
from neaptide.frontends.state.step_slots import argument_name

_GUARDED = (torch.nn.Module, torch.optim.Optimizer, torch.amp.GradScaler)
_OF_VALUES = ("batch", "scalars", "objects")
_OTHERS = ("state", "code", "hyper_parameters", "modes")


def changed_values(captured: CapturedStep, now: Signature) -> UnreadNames | None:
    """Names of the values that differ; None where something else differs, or nothing.

    Args:
        captured: of the step.
        now: the facts of a call.
    """
    then = captured.signature
    if differs_in_others(then, now):
        return None
    names = _Names(captured)
    found = UnreadNames()
    for group in _OF_VALUES:
        new, old = getattr(now, group), getattr(then, group)
        if [name for name, _ in new] != [name for name, _ in old]:
            return None
        for (name, fact), (_, before) in zip(new, old, strict=True):
            if fact != before:
                about = names.of(group, name) if _is_of_one_kind(fact, before) else None
                if not about:
                    return None
                found |= about
    return found or None


def differs_in_others(then: Signature, now: Signature) -> bool:
    """Whether facts of other kinds than values of the arguments and of Python state differ."""
    return any(getattr(now, group) != getattr(then, group) for group in _OTHERS)


def changed_arguments(captured: CapturedStep, now: Signature) -> UnreadNames:
    """The plain values among the arguments that differ, whatever else differs.

    Args:
        captured: of the step.
        now: the facts of a call.
    """
    names, then = _Names(captured), dict(captured.signature.batch)
    found = UnreadNames()
    for name, fact in now.batch:
        before = then.get(name, fact)
        if fact != before and _is_value(fact) and _is_of_one_kind(fact, before):
            found |= names.of("batch", name) or UnreadNames()
    return found


class _Names:
    """By what is stand-ins are put for facts: a leaf of the arguments, or the place that keeps a value or collection."""

    def __init__(self, captured: CapturedStep) -> None:
        self._state = captured.state
        self._about: dict[str, list[Place]] = {}
        for place in (*self._state.scalars, *self._state.objects):
            self._about.setdefault(place.name, []).append(root_of(place))
        for place in self._state.tuples:
            self._about.setdefault(f"len({place.name})", []).append(root_of(place))
        for name, holder in (*self._state.sized, *self._state.contents):
            for fact in (f"len({name})", f"order of {name}", name):
                self._about.setdefault(fact, []).extend(self._keepers(holder))

    def of(self, group: str, name: str) -> UnreadNames | None:
        """What a fact is about; None where no stand-in can take its place."""
        if group == "batch":
            position = name[len("batch[") : -1]
            is_leaf = position.isdecimal() and argument_name(int(position)) == name
            return UnreadNames(arguments=frozenset({int(position)})) if is_leaf else None
        places = self._about.get(name)
        return UnreadNames(places=frozenset(place.name for place in places)) if places else None

    def _keepers(self, holder: Any) -> Iterator[Place]:
        return (root_of(place) for place in self._state.objects if read(place) is holder)


def _is_of_one_kind(now: Any, then: Any) -> bool:
    """Whether two facts are of contents of the same type, which a stand-in may take the place of."""
    if isinstance(now, Same) and isinstance(then, Same):
        kind = type(now.item)
        return kind is type(then.item) and may_be_unread(kind) and not issubclass(kind, _GUARDED)
    if _is_value(now) and _is_value(then):
        return now[0] is then[0] and may_be_unread(now[0])
    return type(now) is type(then) and type(now) in (int, tuple, bytes)


def _is_value(fact: Any) -> bool:
    return type(fact) is tuple and len(fact) == 2 and isinstance(fact[0], type)
