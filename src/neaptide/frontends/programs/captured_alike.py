"""What an earlier capture shows of a call that differs from it: values that are not read, programs at other sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from neaptide.errors import CaptureError
from neaptide.frontends.guards.signature import Signature
from neaptide.frontends.guards.tensor_facts import Geometry
from neaptide.frontends.objects.places import Place, read, root_of
from neaptide.frontends.objects.unread import ReadError, UnreadNames, may_be_unread
from neaptide.frontends.objects.values import Same
from neaptide.frontends.programs.captured import CapturedProgram, CapturedStep, StepRequest
from neaptide.frontends.programs.same_program import first_difference
from neaptide.frontends.recording.host_part import HostPart
from neaptide.frontends.state.step_slots import argument_name

_GUARDED = (torch.nn.Module, torch.optim.Optimizer, torch.amp.GradScaler)
_OF_VALUES = ("batch", "scalars", "objects")
_OTHERS = ("state", "code", "hyper_parameters", "modes")

Recapture = Callable[[StepRequest], CapturedStep]


# -- programs at other sizes


def captured_alike(capture: Recapture, like: CapturedStep, request: StepRequest) -> CapturedStep | None:
    """A capture with dims that vary whose programs are, at the sizes of an earlier one, the programs of that one.

    Two traces agree then, so the step is not run once more to see whether it does the same each time, and values that
    differ between both calls are proved not to be read by the same trace. None where the programs are others.
    """
    try:
        now = like.read_signature(request.args, request.kwargs)
    except CaptureError:
        return None
    is_new = any(dim.name not in like.steady.sizes.asked for dim in request.dims)
    if not is_new or _differs_in_others(like.signature, now):
        return None
    differing = _changed_arguments(like, now)
    changing = request.changing | like.changing
    known = replace(request, counted=like.request.counted, changing=changing, is_known=True)
    while True:
        try:
            found = capture(replace(known, unread=like.unread | differing))
            break
        except ReadError as error:
            left = differing - error.read
            if left == differing:
                return None
            differing = left
        except CaptureError:
            return None
    sizes = _sizes_of(like, request)
    if not all(any(_is_same(program, known, sizes) for known in like.programs) for program in found.programs):
        return None
    return replace(
        found,
        request=replace(found.request, is_known=False),
        has_no_example=all(sizes.get(dim.name, dim.size) != dim.size for dim in request.dims),
    )


def _is_same(program: CapturedProgram, known: CapturedProgram, sizes: Mapping[str, int]) -> bool:
    """Whether a program is another one at the sizes of that, and holds for them."""
    fixed = {name: size for name, size in sizes.items() if name not in known.sizes.asked}
    inside = all(dim.name in known.sizes.asked or fixed.get(dim.name, 0) in dim for dim in program.sizes.dims)
    if not inside or not _decides_alike(program.decisions, known.decisions):
        return False
    return first_difference(replace(program, decisions=None), replace(known, decisions=None), fixed) is None


def _decides_alike(one: HostPart | None, other: HostPart | None) -> bool:
    """Whether two programs take the same branches by the same numbers, those of the second one."""
    if one is None or other is None:
        return one is other
    return (one.keys, one.outcomes) == (other.keys, other.outcomes) and one.holds(other.numbers)


def _sizes_of(like: CapturedStep, request: StepRequest) -> dict[str, int]:
    """By dim that is asked for, its size in the earlier call; none for what was a dim there as well."""
    shapes = {name: fact.shape for name, fact in like.signature.batch if isinstance(fact, Geometry)}
    found: dict[str, int] = {}
    for dim in request.dims:
        position, axis = dim.places[0]
        size = dict(enumerate(shapes.get(argument_name(position), ()))).get(axis)
        if isinstance(size, int):
            found[dim.name] = size
    return found


# -- values that are not read


def not_reading(
    capture: Recapture, request: StepRequest, values: UnreadNames, before: CapturedStep
) -> CapturedStep | None:
    """A capture in which as many of some values as can be are proved not to be read; None where none is.

    Its programs are those of `before`, a capture for `request` that reads them.
    """
    while values:
        try:
            found = capture(replace(request, unread=request.unread | values))
        except ReadError as error:
            values -= error.read
            continue
        except CaptureError:  # a stand-in came where only a value can be
            return None
        is_same = all(any(p.is_like(known) for known in before.programs) for p in found.programs)
        return found if is_same else None
    return None


def changed_values(captured: CapturedStep, now: Signature) -> UnreadNames | None:
    """Names of the values that the facts of a call differ in; None where something else differs, or nothing."""
    then = captured.signature
    if _differs_in_others(then, now):
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


def _differs_in_others(then: Signature, now: Signature) -> bool:
    """Whether facts of other kinds than values of the arguments and of Python state differ."""
    return any(getattr(now, group) != getattr(then, group) for group in _OTHERS)


def _changed_arguments(captured: CapturedStep, now: Signature) -> UnreadNames:
    """The plain values among the arguments that differ, whatever else differs."""
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
