"""Changes of the lists, dicts and objects that a step is called with, such as `labels = batch.pop("labels")`.

A trace works on containers of its own. What it leaves in them is put into those of the caller after each run of the program.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from torch.utils import _pytree as pytree

from neaptide.errors import CaptureError
from neaptide.frontends.objects.batch_objects import attributes_of, flatten, has_slots, is_object
from neaptide.frontends.objects.containers import copied, entries_of, entry, keys_of, refill
from neaptide.frontends.objects.places import MISSING
from neaptide.frontends.objects.unread import is_unread
from neaptide.frontends.objects.values import is_plain, is_same
from neaptide.frontends.source.users_code import find_line
from neaptide.frontends.state.step_state import StepState

Call = tuple[Sequence[Any], Mapping[str, Any]]
Path = tuple[Any, ...]  # keys and positions, from the arguments of a call on
HOLDERS: Final = frozenset((dict, OrderedDict, defaultdict, list, deque))


class Attributes:
    """Stands in a path for the step from an object to the dict of its attributes."""


@dataclass(frozen=True)
class ArgumentChanges:
    """What a step leaves in the containers at some paths among its arguments.

    `spec` is the structure of the list of what they hold then; its leaves stand after those of the step's result.
    """

    paths: tuple[Path, ...] = ()
    spec: Any = None

    def __bool__(self) -> bool:
        return bool(self.paths)

    def check(self, call: Call, state: StepState) -> None:
        """Refuse a call in which such a container is in two places, so that the step would see the change there, too."""
        seen = [id(part) for _, part in parts_of(call)]
        seen += {id(holder) for _, holder in (*state.containers, *state.sized)}
        for path in self.paths:
            if seen.count(id(part_at(call, path))) > 1:
                raise refusal(call, path, "it is kept in another place that the step can reach")

    def do(self, call: Call, leaves: Sequence[Any]) -> None:
        """Have in the containers of a call what the step leaves there, of which these are the leaves."""
        holders = [part_at(call, path) for path in self.paths]  # a change may take one out of another
        for holder, content in zip(holders, pytree.tree_unflatten(leaves, self.spec), strict=True):
            refill(holder, content)


NO_CHANGES: Final = ArgumentChanges()


def containers_in(call: Call) -> list[Any]:
    """The lists and dicts among the arguments of a call that a step may write, those of attributes among them."""
    return [part for _, part in parts_of(call) if is_holder(part)]


def part_at(call: Call, path: Path) -> Any:
    """What lies at a path in the arguments of a call."""
    part: Any = call
    for step in path:
        part = attributes_of(part) if step is Attributes else entry(part, step)
    return part


def parts_of(call: Call) -> Iterator[tuple[Path, Any]]:
    """Everything among the arguments with its path, but for the arguments themselves; nothing of a stand-in is asked."""
    waiting: list[tuple[Path, Any, tuple[int, ...]]]
    waiting = [((0, position), part, ()) for position, part in enumerate(call[0])]
    waiting += [((1, name), part, ()) for name, part in call[1].items()]
    while waiting:
        path, part, around = waiting.pop()
        yield path, part
        if id(part) in around:  # an object that holds itself
            continue
        inner = (*around, id(part))
        if is_holder(part) or issubclass(type(part), tuple):
            keys = keys_of(part) if isinstance(part, dict) else range(len(entries_of(part)))
            waiting += [
                ((*path, key), content, inner) for key, content in zip(keys, entries_of(part), strict=True)
            ]
        if is_object(part) and (attributes := attributes_of(part)) is not None:
            waiting.append(((*path, Attributes), attributes, inner))


def is_holder(part: Any) -> bool:
    """Whether a part is a list or dict, or an object that is one: its entries can be written."""
    return type(part) in HOLDERS or (is_object(part) and isinstance(part, dict))


def _name(call: Call, path: Path) -> str:
    """A path as the user writes it."""
    root, first, *steps = path
    name = f"args[{first}]" if root == 0 else str(first)
    if root == 0 and len(call[0]) == 1 and not call[1]:
        name = "batch"
    after = zip([None, *steps], steps, strict=False)
    return name + "".join(
        f".{step}" if before is Attributes else f"[{step!r}]"
        for before, step in after
        if step is not Attributes
    )


def refusal(call: Call, path: Path, why: str, where: str | None = None) -> CaptureError:
    """The error for a change that cannot be done at each call."""
    return CaptureError(
        f"the step changes its argument {_name(call, path)}",
        where=where,
        why=why,
        next_step="copy it before you change it (batch = dict(batch)), or change it outside the step",
    )


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
