"""What a step asks of tensors by themselves while fakes stand for them: membership, `id` and `hash`, gradients and flags.

`p in decayed` and `masks[id(p)]` ask by identity. A fake is another object, and would not be found, without a word.
Operations on a tensor without a fake raise by themselves; its gradient and its flags can be read and set without an
operation: an update that finds no gradient would be left out without a word.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import torch

from neaptide.errors import CaptureError
from neaptide.frontends.objects.containers import base_of, entry, keys_of, put
from neaptide.frontends.objects.places import Place, replaced, root_of
from neaptide.frontends.recording.line_notes import calling_line, is_ours
from neaptide.frontends.recording.recording import Notes
from neaptide.frontends.state.step_state import StepState
from neaptide.frontends.watch.trace_watch import Write
from neaptide.frontends.world.stand_ins import always, identity_stand_in, is_hashed_by_address

# What the user asks by these names of builtins, and for which objects the answer is an address.
_BY_ADDRESS: dict[str, tuple[Callable[[Any], int], Callable[[Any], bool]]] = {
    "id": (id, always),
    "hash": (hash, is_hashed_by_address),
}


class IdentityKeys:
    """Lets collections, `id` and `hash` take the fakes for the tensors themselves, the user's by name of their slot."""

    def __init__(self, state: StepState, originals: Mapping[str, torch.Tensor]) -> None:
        self._names = {id(tensor): name for name, tensor in originals.items()}
        self._originals = originals
        self._dicts = [item for _, item in state.containers if isinstance(item, dict) and self._knows(item)]
        self._sets: list[tuple[Place, Any]] = [
            (place, item)
            for place in state.watched
            if isinstance(item := place.get(), (set, frozenset)) and self._knows(item)
        ]
        self._stand_ins: list[_InOrder | _FrozenInOrder] = []
        roots = {root.identity: root for place, _ in self._sets if (root := root_of(place)) is not place}
        self._tuples = [(root, root.get()) for root in roots.values()]
        self._filled: list[Any] = []
        self._asking = [(namespace, key) for namespace, key in state.lacking if key in _BY_ADDRESS]
        self._fakes: dict[int, torch.Tensor] = {}
        self._key_fakes = state.key_fakes
        self._known: dict[int, torch.Tensor] = {}

    def _knows(self, collection: Any) -> bool:
        return any(id(key) in self._names for key in keys_of(collection))

    def fill(self, fakes: Mapping[str, torch.Tensor]) -> None:
        """Put the fakes, by name of the slot, in the places of the tensors."""
        self._fakes = {key: fakes[name] for key, name in self._names.items()}
        self._known = {id(fakes[name]): tensor for name, tensor in self._originals.items()}
        for table in self._dicts:
            _exchange(table, self._fakes)
        self._key_fakes.update(self._fakes)
        for place, members in self._sets:
            kind = _InOrder if isinstance(members, set) else _FrozenInOrder
            self._stand_ins.append(kind([self._fakes.get(id(member), member) for member in keys_of(members)]))
            place.set(self._stand_ins[-1])
        self._filled = [root.get() for root, _ in self._tuples]
        for namespace, key in self._asking:
            namespace[key] = self._asked_of_tensors(key)

    def put_back(self) -> list[tuple[tuple[int, Any], Write]]:
        """Make all of them what they were; returns the sets that the step wrote, by identity of their place.

        What it wrote into a dict is there still.
        """
        written = []
        for table in self._dicts if self._known else ():
            _exchange(table, self._known)
        self._key_fakes.clear()
        for (place, members), stand_in in zip(self._sets, self._stand_ins, strict=False):
            if stand_in.has_changed():
                written.append((place.identity, Write(place.name)))
            if root_of(place) is place and place.get() is stand_in:
                place.set(members)
        for (root, before), filled in zip(self._tuples, self._filled, strict=False):
            if root.get() is filled:
                root.set(before)
        for namespace, key in self._asking:
            namespace.pop(key, None)
        self._known, self._stand_ins, self._filled = {}, [], []
        return written

    def _asked_of_tensors(self, key: str) -> Callable[[Any], int]:
        function, by_address = _BY_ADDRESS[key]

        def ask(item: Any) -> int:
            return function(self._known.get(id(item), item))

        return identity_stand_in(ask, by_address)


def _exchange(table: dict[Any, Any], by_id: Mapping[int, torch.Tensor]) -> None:
    entries = [(by_id.get(id(key), key), entry(table, key)) for key in keys_of(table)]
    base_of(table).clear(table)
    for key, content in entries:
        put(table, key, content)


class _InOrder(set[Any]):
    """A set that goes through its members in a given order: that of the set it stands for."""

    def __init__(self, members: list[Any]) -> None:
        super().__init__(members)
        self._members = members

    def __iter__(self) -> Iterator[Any]:
        return iter(self._members if not self.has_changed() else [*super().__iter__()])

    def has_changed(self) -> bool:
        """Whether the step wrote it."""
        return {id(member) for member in super().__iter__()} != {id(member) for member in self._members}


class _FrozenInOrder(frozenset[Any]):
    """Likewise, of a frozen set."""

    def __init__(self, members: list[Any]) -> None:
        self._members = members

    def __iter__(self) -> Iterator[Any]:
        return iter(self._members)

    def has_changed(self) -> bool:
        """It cannot."""
        return False


_PROPERTIES: Final = ("grad", "requires_grad", "data")

_METHODS: Final = ("requires_grad_", "register_hook", "register_post_accumulate_grad_hook", "retain_grad")


class MissedState:
    """The tensors of the user's objects that have a fake, with their names; notes where `requires_grad` of any is set."""

    def __init__(self, tensors: Iterable[tuple[str, torch.Tensor]], notes: Notes) -> None:
        self._names: Mapping[int, str] = {id(tensor): name for name, tensor in tensors}
        self._notes = notes

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Look at each reading and setting of gradients and flags while the context is open."""
        with contextlib.ExitStack() as stack:
            for name in _PROPERTIES:
                stack.enter_context(replaced(torch.Tensor, name, functools.partial(self._property, name)))
            for name in _METHODS:
                make = functools.partial(self._checked, sets_flag=name == "requires_grad_")
                stack.enter_context(replaced(torch.Tensor, name, make))
            yield

    def _property(self, name: str, original: Any) -> property:
        write = self._checked(original.__set__, sets_flag=name == "requires_grad")
        return property(self._checked(original.__get__), write, original.__delete__)

    def _checked(self, original: Callable[..., Any], *, sets_flag: bool = False) -> Callable[..., Any]:
        names, notes = self._names, self._notes

        @functools.wraps(original)
        def checked(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            if id(tensor) in names:
                self._check(tensor)
            if sets_flag and (line := calling_line()) is not None:
                notes.flag_lines[id(tensor)] = line
            return original(tensor, *args, **kwargs)

        return checked

    def _check(self, tensor: torch.Tensor) -> None:
        """Refuse what is asked of a tensor that has a fake, but by neaptide itself."""
        if is_ours(2):
            return
        name, line = self._names[id(tensor)], calling_line(2)
        raise CaptureError(
            f"the step reaches {name} through an object that was not found",
            where=None if line is None else line.location,
            why=f"{name} is replaced while the step is traced; what is read or set here belongs to another tensor",
            next_step="name that object in state=, or keep the tensor in an attribute, a list or a dict of an object that "
            "the step's code names",
        )
