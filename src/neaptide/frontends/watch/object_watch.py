"""Notices what a trace did to objects that keep their state outside Python's attributes, and puts it back.

Random generators of every library, byte buffers, sets and queues: what is drawn from them or written to them at
capture would be drawn and written once. They are told by kind: what a random generator is, is what it can do.
"""

from __future__ import annotations

import array
import collections
import ctypes
import pickle
import random
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from neaptide.errors import CaptureError, HostEffectError
from neaptide.frontends.objects.containers import copied, refill
from neaptide.frontends.objects.library_objects import parts_of
from neaptide.frontends.objects.places import attributes_of
from neaptide.frontends.objects.values import Same, is_scalar
from neaptide.frontends.source.users_code import class_file, is_library_file, names_in
from neaptide.frontends.state.step_state import StepState

_NOT_ENTERED = (type, torch.Tensor, torch.dtype, torch.device, types.CodeType)
_TOLD_BY_NAME = (types.FunctionType, types.ModuleType, type)


def reachable_objects(state: StepState) -> Iterator[tuple[str, Any]]:
    """Objects that are neither tensors nor plain values, each once, with a name. O(objects reached)."""
    names = frozenset().union(*(names_in(code) for code in state.codes))
    seen: set[int] = set()
    waiting: collections.deque[tuple[str, Any]] = collections.deque()
    waiting.extend((place.name, place.get()) for place in state.watched)
    waiting.extend(state.modules.items())
    waiting.extend(state.containers)
    while waiting:
        name, item = waiting.popleft()
        if is_scalar(item) or isinstance(item, _NOT_ENTERED) or id(item) in seen:
            continue
        seen.add(id(item))
        yield name, item
        parts = parts_of(item, name)
        waiting.extend(_inside(name, item, names, seen) if parts is None else parts)


def _inside(name: str, item: Any, names: frozenset[str], seen: set[int]) -> Iterator[tuple[str, Any]]:
    if isinstance(item, types.ModuleType):
        entries = vars(item)
        yield from ((f"{name}.{key}", entries[key]) for key in sorted(names & entries.keys()))
    elif isinstance(item, types.FunctionType):
        yield from _of_function(name, item)
    else:
        yield name, getattr(item, "__wrapped__", None)
        yield from ((place.name, place.get()) for place in attributes_of(item, name))
        for base in type(item).__mro__:
            if id(base) not in seen:
                seen.add(id(base))
                yield from _of_class(name, base)


def _of_function(name: str, function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Closure and defaults, and the objects among the globals that the code names, but no further functions."""
    for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield variable, cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    yield name, function.__defaults__ or ()
    yield name, function.__kwdefaults__ or {}
    for variable in function.__code__.co_names:
        content = function.__globals__.get(variable)
        if content is not None and not isinstance(content, _TOLD_BY_NAME):
            yield variable, content


def _of_class(name: str, kind: type) -> Iterator[tuple[str, Any]]:
    for key, content in list(vars(kind).items()):
        if key[:2] != "__" and not callable(content) and not hasattr(type(content), "__get__"):
            yield f"{name}.{key}", content


# -- what is watched


@dataclass(frozen=True, eq=False)
class Watched:
    """One object, with its state as it was `before` the trace; `verb` is what a step does that changes it.

    `read` gives its state now, comparable with `==`, and `write` gives it a state back.
    """

    name: str
    item: Any
    verb: str
    read: Callable[[], Any]
    write: Callable[[Any], Any]
    before: Any

    def has_changed(self) -> bool:
        """Whether its state is another than before the trace."""
        return bool(self.read() != self.before)

    def put_back(self) -> None:
        """Give it the state from before the trace."""
        self.write(self.before)


class ObjectWatch:
    """The objects that a step can reach, libraries' objects included, and that a trace must leave as they are."""

    def __init__(self, state: StepState) -> None:
        self.arrays: list[Any] = []
        self.watched: list[Watched] = []
        numpy = sys.modules.get("numpy")
        # Operations on fake tensors draw nothing from torch's default generator, so only the user's code does.
        of_module: Any = random.random  # a method of the generator that all share
        shared: dict[str, Any] = {"torch's default generator": torch.default_generator}
        shared["the module random"] = of_module.__self__
        known = {id(generator) for generator in shared.values()}
        if numpy is not None:
            shared["numpy.random"] = numpy.random.rand.__self__
            known |= {id(numpy.random.rand.__self__), id(numpy.random.get_bit_generator())}
        reached = (pair for pair in reachable_objects(state) if id(pair[1]) not in known)
        for name, item in (*shared.items(), *reached):
            if numpy is not None and isinstance(item, numpy.ndarray):
                self.arrays.append(item)
            else:
                self.watched += [
                    Watched(name, item, verb, read, write, read()) for verb, read, write in _kinds(item)
                ]

    def put_back(self) -> list[Watched]:
        """Gives every object its state back; returns those that had changed."""
        changed = [watched for watched in self.watched if watched.has_changed()]
        for watched in changed:
            watched.put_back()
        return changed


def changed_error(changed: Watched, where: str | None) -> CaptureError:
    """The error for an object whose state the trace changed, at the line that did it."""
    return HostEffectError(
        f"the step {changed.verb} {changed.name} ({type(changed.item).__name__})",
        where=where,
        why="it would happen once, at capture, and never again when the captured program runs",
        next_step=_NEXT[changed.verb],
    )


_DRAWS = "draws random numbers from"
_SEEDS = "sets the state of"
_WRITES = "writes"
_NEXT = {
    _DRAWS: "draw with torch's default generator (torch.rand), or outside the step and pass it as an argument",
    _SEEDS: "seed outside the step; or make the state there (torch.get_rng_state() after torch.manual_seed), pass it with "
    "the batch, and set it in the step (torch.set_rng_state)",
    _WRITES: "keep it in a tensor or buffer, or do it outside the step",
}
_Access = tuple[str, Callable[[], Any], Callable[[Any], Any]]


def _kinds(item: Any) -> Iterator[_Access]:
    """How to read and write the state of an object, if it is of a kind that is watched."""
    kind = type(item)
    if isinstance(item, (dict, list, tuple, frozenset)):
        return
    if isinstance(item, (collections.deque, set)):
        yield (
            _WRITES,
            lambda: list(map(Same, copied(item))),
            lambda before: refill(item, [fact.item for fact in before]),
        )
    elif isinstance(item, (bytearray, array.array)):
        yield _WRITES, lambda: bytes(item), lambda before: _overwrite(item, before)
    elif isinstance(item, (memoryview, ctypes.Array, ctypes.Structure, ctypes._SimpleCData)):  # noqa: SLF001 - the only name of its base class
        view = memoryview(item)
        if not view.readonly:
            yield _WRITES, view.tobytes, lambda before: view.cast("B").__setitem__(slice(None), before)
    elif is_library_file(class_file(kind)):
        yield from _generator(item, kind)


def _generator(item: Any, kind: type) -> Iterator[_Access]:
    """A random generator of any library: by the pair of methods, or the property, with which its state is kept."""
    numpys = getattr(item, "bit_generator", None) if hasattr(kind, "bit_generator") else None
    if numpys is not None:
        yield from _generator(numpys, type(numpys))
    elif hasattr(kind, "random_raw") and hasattr(kind, "state"):
        yield _DRAWS, lambda: _Kept(item.state), lambda before: setattr(item, "state", before.state)
    else:
        for getter, setter in (("getstate", "setstate"), ("get_state", "set_state")):
            if callable(getattr(kind, getter, None)) and callable(getattr(kind, setter, None)):
                if not isinstance(item, random.SystemRandom):  # it has no state: what it asks is watched
                    yield _by_methods(item, getattr(item, getter), getattr(item, setter))
                return


def _by_methods(item: Any, read: Callable[[], Any], write: Callable[[Any], Any]) -> _Access:
    verb = _SEEDS if isinstance(item, torch.Generator) else _DRAWS
    return verb, lambda: _Kept(read()), lambda before: write(before.state)


class _Kept:
    """A state that may hold arrays, comparable by its bytes."""

    def __init__(self, state: Any) -> None:
        self.state = state
        self._bytes = state.numpy().tobytes() if isinstance(state, torch.Tensor) else pickle.dumps(state)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Kept) and other._bytes == self._bytes

    def __hash__(self) -> int:
        return hash(self._bytes)


def _overwrite(holder: Any, content: bytes) -> None:
    if isinstance(holder, array.array):
        del holder[:]
        holder.frombytes(content)
    else:
        holder[:] = content
