"""Values that the program of a step does not read: counters, logs, the number of a batch.

Only host code after the program looks at them, so their value decides nothing and is no guard. That is proved: the
step is traced with stand-ins in their place, and whatever looks at a stand-in ends that trace.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import torch

# What code tells apart by `is` alone; no stand-in notices that.
_TOLD_BY_IDENTITY: Final = (bool, type(None), enum.Enum, torch.dtype, torch.device, torch.layout, type)


@dataclass(frozen=True)
class UnreadNames:
    """What a step does not read: names of Python state, as the search for state has them, and positions of arguments."""

    places: frozenset[str] = frozenset()
    arguments: frozenset[int] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.places or self.arguments)

    def __or__(self, other: UnreadNames) -> UnreadNames:
        return UnreadNames(self.places | other.places, self.arguments | other.arguments)

    def __sub__(self, other: UnreadNames) -> UnreadNames:
        return UnreadNames(self.places - other.places, self.arguments - other.arguments)


ALL_READ: Final = UnreadNames()


def may_be_unread(kind: type) -> bool:
    """Whether reading something of a type leaves a trace: code tells flags and `None` apart by identity alone."""
    return not issubclass(kind, _TOLD_BY_IDENTITY)


class ReadError(BaseException):
    """The step reads what it was taken not to read. Nothing of the user's may catch it."""

    def __init__(self, read: UnreadNames) -> None:
        super().__init__(read)
        self.read = read


class StandIns:
    """The stand-ins of one trace, and what the step has looked at so far (`read`).

    `keys` says by `id` of a stand-in what it stands for: `("unread", name)` or `("argument", position)`.
    """

    def __init__(self) -> None:
        self.read = ALL_READ
        self.keys: dict[int, tuple[str, Any]] = {}
        self._made: list[Unread] = []

    def of_place(self, name: str) -> Unread:
        """A stand-in for what a place holds."""
        return self._stand_in(("unread", name), UnreadNames(places=frozenset({name})))

    def of_argument(self, position: int) -> Unread:
        """A stand-in for a leaf of the arguments."""
        return self._stand_in(("argument", position), UnreadNames(arguments=frozenset({position})))

    def check(self) -> None:
        """Raise `ReadError` for what was read."""
        if self.read:
            raise ReadError(self.read)

    def _stand_in(self, key: tuple[str, Any], names: UnreadNames) -> Unread:
        made = Unread(self, names)
        self._made.append(made)
        self.keys[id(made)] = key
        return made


class Unread:
    """Stands for a value. Every way to look at it is noted and raises."""

    __slots__ = ("_names", "_owner")

    def __init__(self, owner: StandIns, names: UnreadNames) -> None:
        object.__setattr__(self, "_owner", owner)
        object.__setattr__(self, "_names", names)

    def __getattribute__(self, _name: str) -> Any:
        raise _noted(self)

    @classmethod
    def __torch_function__(
        cls, _function: Any, _types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        raise _noted(*_among([*args, *(kwargs or {}).values()]))


def _among(items: Iterable[Any]) -> list[Unread]:
    found = []
    for item in items:
        if type(item) is Unread:
            found.append(item)
        elif type(item) in (list, tuple):
            found += _among(item)
    return found


def _noted(*read: Unread) -> ReadError:
    names = ALL_READ
    for one in read:
        own: UnreadNames = object.__getattribute__(one, "_names")
        owner: StandIns = object.__getattribute__(one, "_owner")
        owner.read |= own
        names |= own
    return ReadError(names)


def _refuse(self: Unread, *_args: Any, **_kwargs: Any) -> Any:
    raise _noted(self)


_WAYS = """
    abs add aenter aexit aiter and anext array await bool buffer bytes call ceil complex contains copy deepcopy delattr
    delitem divmod enter eq exit float floor floordiv format fspath ge get getitem gt hash iadd iand ifloordiv ilshift
    imatmul imod imul index int invert ior ipow irshift isub iter itruediv ixor le len length_hint lshift lt matmul mod
    mul ne neg next or pos pow radd rand rdivmod reduce reduce_ex repr reversed rfloordiv rlshift rmatmul rmod rmul ror
    round rpow rrshift rshift rsub rtruediv rxor setattr setitem sizeof str sub truediv trunc xor
"""
for _way in _WAYS.split():
    setattr(Unread, f"__{_way}__", _refuse)


def is_unread(item: Any) -> bool:
    """Whether something is a stand-in; asks nothing of it."""
    return type(item) is Unread
