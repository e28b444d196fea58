"""Python state that a step may not write while it is traced.

It would be written once, at the trace, and never again when the captured program runs. The watch notices it, puts
the user's objects back as they were and names the line. Plain data that is replaced by equal plain data is no write.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from neaptide.errors import HostEffectError
from neaptide.frontends import _torch_private as private
from neaptide.frontends.objects.containers import copied, refill
from neaptide.frontends.objects.places import MISSING, ItemPlace, Place, read, root_of
from neaptide.frontends.objects.values import is_plain, is_same
from neaptide.frontends.source.users_code import find_line
from neaptide.frontends.state.step_slots import NUMBER_TYPES, TensorSpec
from neaptide.frontends.state.step_state import StepState
from neaptide.frontends.state.traced import Trace

_MOVED = "move_to_end"  # said of a dict whose entries are the same in another order


@dataclass(frozen=True)
class LeftTensor:
    """Stands for a tensor that a step leaves in a place: another one at each call, of the same make.

    `attached` says whether autograd could go back through it.
    """

    spec: TensorSpec
    attached: bool
    is_leaf: bool

    def placeholder(self) -> torch.Tensor:
        """A tensor of that geometry without bytes."""
        spec = self.spec
        return torch.empty_strided(spec.shape, spec.strides, dtype=spec.dtype, device="meta")


@dataclass(frozen=True, eq=False)
class Write:
    """Something of the Python state that is another thing after the step than before; `MISSING` stands for nothing.

    Attributes:
        watched: index of the place in `StepState.watched`, where it is one.
        entry: index in `StepState.containers` and key, where it is an entry of a dict; None with `watched`, and for
            what cannot be written back: tensors, lists, random states.
    """

    name: str
    before: Any = None
    after: Any = None
    watched: int | None = None
    entry: tuple[int, Any] | None = None

    @property
    def can_be_done(self) -> bool:
        """Whether the write is of plain data or of a tensor, to a place that can be written again."""
        if self.watched is None and self.entry is None:
            return False
        overwrites_plain = self.before is MISSING or is_plain(self.before)
        if isinstance(self.after, LeftTensor):
            return overwrites_plain or type(self.before) is torch.Tensor
        return overwrites_plain and is_plain(self.after)

    @property
    def is_count(self) -> bool:
        """Whether it is of a number to a place that held one."""
        numbers = (*NUMBER_TYPES, torch.SymInt, torch.SymFloat)
        return self.watched is not None and type(self.before) in NUMBER_TYPES and type(self.after) in numbers

    def identity(self, state: StepState) -> tuple[int, Any] | None:
        """Identity of the place, if it is known."""
        return None if self.watched is None and self.entry is None else self.place(state).identity

    def without_fakes(self) -> Write:
        """The same write; a tensor of the trace is told by its make."""
        if not isinstance(self.after, torch.Tensor) or isinstance(self.after, torch.nn.Parameter):
            return self
        left = LeftTensor(TensorSpec.of(self.after), self.after.requires_grad, self.after.is_leaf)
        return replace(self, after=left)

    def place(self, state: StepState) -> Place:
        """Where it is, in the state of the step that was traced or of another of the same make."""
        if self.watched is not None:
            return state.watched[self.watched]
        assert self.entry is not None
        index, key = self.entry
        name, holder = state.containers[index]
        return ItemPlace(_entry_name(name, key), holder, key)


class StateWrittenError(HostEffectError):
    """The step writes Python state, which has been put back; `trace` is None where the step did not come to its end."""

    writes: Sequence[Write] = ()
    trace: Trace | None = None


class StateWatch:
    """Remembers the Python state that a step could write, and compares it afterwards."""

    def __init__(self, state: StepState) -> None:
        self._state = state
        self._places = [
            (index, place, place.get())
            for index, place in enumerate(state.watched)
            if not self._is_refreshed(*place.identity)
        ]
        roots = {r.identity: r for slot in state.tensors for p in slot.places if (r := root_of(p)) is not p}
        self._tuples = [(place, place.get()) for place in roots.values()]
        self._contents = [(name, holder, copied(holder)) for name, holder in state.containers]
        self._ordered = {id(holder) for _, holder in state.sized if isinstance(holder, dict)}

    def restore(self) -> list[Write]:
        """Puts everything back; returns what had been written, each once.

        The tensors are back in their places already.
        """
        for place, before in self._tuples:
            place.set(before)
        written = self.written()
        for _, place, before in self._places:
            # An entry of a list that was shortened has no place; the list itself is put back whole.
            is_its_own = root_of(place) is place and not isinstance(place.holder, list)
            if is_its_own and read(place) is not before:
                place.set(before)
        for _, holder, before in self._contents:
            refill(holder, before)
        return written

    def written(self) -> list[Write]:
        """What has been written so far, each once; leaves everything as it is."""
        found: dict[tuple[int, Any], Write] = {}
        for index, place, before in self._places:
            after = read(place)
            if root_of(place) is place and not is_same(before, after):
                found[place.identity] = Write(place.name, before, after, watched=index)
        for index, (name, holder, before) in enumerate(self._contents):
            now = copied(holder)
            for key in self._changed_keys(before, now, holder):
                label = _entry_name(name, key)
                if (id(holder), key) in found or self._is_refreshed(id(holder), key):
                    continue
                if isinstance(holder, dict) and key is not _MOVED:
                    then = before.get(key, MISSING)
                    found[id(holder), key] = Write(label, then, now.get(key, MISSING), entry=(index, key))
                else:
                    found[id(holder), key] = Write(label)
        return list({write.name: write for write in found.values()}.values())

    def _is_refreshed(self, holder: int, key: Any) -> bool:
        return holder in self._state.torch_owned and key in private.REFRESHED

    def _changed_keys(self, before: Any, after: Any, holder: Any) -> list[Any]:
        changed = _changed_keys(before, after)
        is_moved = not changed and id(holder) in self._ordered and list(before) != list(after)
        return [_MOVED] if is_moved else changed

    def refuse(self, writes: Sequence[Write], trace: Trace | None = None) -> StateWrittenError:
        """The error for state that the step wrote."""
        names = [write.name for write in writes]
        words = [
            w for w in re.findall(r"[A-Za-z_]\w*", names[0]) if w not in {"append", "remove", "self", _MOVED}
        ]
        is_first = any(write.before is None or write.before is MISSING for write in writes)
        lines = (find_line(word, self._state.codes) for word in reversed(words))
        error = StateWrittenError(
            f"the step writes {', '.join(names[:3])}{' and more' if len(names) > 3 else ''}",
            where=next((line for line in lines if line), None),
            why="Python state that is written during the trace would not be written when the program runs",
            next_step="keep it in a tensor or buffer, or update it outside the step"
            + (
                ", or call the step once before it is planned, where its first call alone does this"
                * is_first
            ),
        )
        error.writes, error.trace = tuple(write.without_fakes() for write in writes), trace
        return error


def rebound(place: Place, before: torch.Tensor, state: StepState) -> Write:
    """The write of something else to the place of a tensor, as it is now."""
    for index, (name, holder) in enumerate(state.containers):
        if isinstance(place, ItemPlace) and isinstance(holder, dict) and holder is place.holder:
            return Write(_entry_name(name, place.key), before, read(place), entry=(index, place.key))
    return Write(place.name)


def _entry_name(holder: str, key: Any) -> str:
    return f"{holder}.{key}" if isinstance(key, str) else f"{holder}[{key!r}]"


def _changed_keys(before: Any, after: Any) -> list[Any]:
    if isinstance(before, list):
        if len(before) != len(after):
            return ["append"] if len(after) > len(before) else ["remove"]
        return [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if not is_same(a, b)]
    return [
        k
        for k in {**before, **after}
        if k not in before or k not in after or not is_same(before[k], after[k])
    ]
