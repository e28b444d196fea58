"""Changes of the lists, dicts and objects that a step is called with, such as `labels = batch.pop("labels")`.

A trace works on containers of its own. What it leaves in them is put into the caller's behind each run of the program.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from torch.utils import _pytree as pytree

from neaptide.errors import CaptureError
from neaptide.frontends.objects.batch_objects import attributes_of, is_object
from neaptide.frontends.objects.containers import entries_of, entry, keys_of, refill
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
