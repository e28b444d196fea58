"""Notices what a trace changes in the lists, dicts and objects that the step is called with."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

from torch.utils import _pytree as pytree

from neaptide.frontends.objects.batch_objects import flatten, has_slots, is_object
from neaptide.frontends.objects.containers import copied, entries_of
from neaptide.frontends.objects.places import MISSING
from neaptide.frontends.objects.unread import is_unread
from neaptide.frontends.objects.values import is_plain
from neaptide.frontends.state.argument_changes import HOLDERS, Call, Path, is_holder, parts_of, refusal
from neaptide.frontends.state.step_state import StepState
from neaptide.frontends.watch.trace_watch import find_line, is_same


class ArgumentWatch:
    """Remembers what the containers among the arguments of a trace hold.

    `held` has, by `id` of what is no plain value among the arguments, the path by which each call has its own.
    """

    def __init__(self, call: Call, state: StepState) -> None:
        self._call, self._state = call, state
        self._changed: Path = ()
        self._parts = list(parts_of(call))  # kept alive, so that no other object gets the identity of one
        self.held: dict[int, tuple[str, Any]] = {
            id(part): ("held", path) for path, part in self._parts if is_unread(part) or not is_plain(part)
        }
        self._before = [(path, part, copied(part)) for path, part in self._parts if is_holder(part)]
        self._closed = [(path, part, _form(part)) for path, part in self._parts if _is_closed(part)]

    def changed(self) -> dict[Path, Any]:
        """By path, what the containers hold that hold something else than before."""
        for path, part, before in self._closed:
            if _form(part) != before:
                why = f"what a {type(part).__name__} keeps cannot be written from outside"
                raise refusal(self._call, path, why, self._line(path))
        found: dict[Path, Any] = {}
        for path, part, before in self._before:
            now = copied(part)
            different = _differences(before, now)
            if different:
                found[path] = now
                self._changed = self._changed or (*path, different[0])
        return found

    def refuse_odd(self, contents: Iterable[Any]) -> None:
        """Refuse new contents, neither tensors nor numbers of the program, that are no plain values."""
        for content in contents:
            if not is_plain(content):
                why = f"the {type(content).__name__} that it puts there would be that of the capture for ever"
                raise refusal(self._call, self._changed, why, self._line(self._changed))

    def refuse_shared(self, contents: Iterable[Any], own: Container[int]) -> None:
        """Refuse a list or dict, but those of `own` by `id`, that is put in two places: a program makes one for each."""
        seen: set[int] = set()
        waiting = [part for content in contents for part in entries_of(content)]
        while waiting:
            part = waiting.pop()
            if id(part) in own or not (is_holder(part) or issubclass(type(part), tuple)):
                continue
            if id(part) in seen and is_holder(part):
                why = f"the new {type(part).__name__} that it puts in two places would be two of them"
                raise refusal(self._call, self._changed, why, self._line(self._changed))
            seen.add(id(part))
            waiting += entries_of(part)

    def _line(self, path: Path) -> str | None:
        words = [step for step in reversed(path[1:]) if isinstance(step, str)]
        return next((line for word in words if (line := find_line(word, self._state.codes))), None)


def _is_closed(part: Any) -> bool:
    """Whether a part is taken apart by what a library says of its type, or keeps something in slots."""
    kind = type(part)
    if kind in HOLDERS or issubclass(kind, tuple):
        return False
    return has_slots(kind) if is_object(part) else kind in pytree.SUPPORTED_NODES


def _form(part: Any) -> Any:
    leaves, structure = flatten(part)
    return structure, list(map(id, leaves))


def _differences(before: Any, now: Any) -> list[Any]:
    """Keys or positions of a container under which something else is than before, or that are at another place now."""
    if not isinstance(before, dict):
        before, now = dict(enumerate(before)), dict(enumerate(now))
    found = [
        key for key in {**before, **now} if not _is_same(before.get(key, MISSING), now.get(key, MISSING))
    ]
    return found or [key for key, other in zip(now, before, strict=True) if key != other]


def _is_same(before: Any, now: Any) -> bool:
    is_told = not (is_unread(before) or is_unread(now))
    return before is now or (is_told and is_same(before, now))
