"""The leaves of a step's arguments, also where a batch is an object: a mapping that is no dict, or a dataclass.

Such an object is what its attributes hold, and its entries where it is a dict: no code of its class runs here.
"""

from __future__ import annotations

import types
import weakref
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeAlias

import torch
from torch.utils import _pytree as pytree

from neaptide.frontends.objects.containers import copied
from neaptide.frontends.objects.unread import is_unread
from neaptide.frontends.objects.values import is_scalar

_DICTS: Final = (OrderedDict, defaultdict, dict)
_MADE_ALIKE: Final = frozenset((*_DICTS, object, Generic, Protocol))
_PLAIN: Final = frozenset((torch.Tensor, torch.nn.Parameter, int, float, bool, str, type(None)))
IsLeaf: TypeAlias = Callable[[Any], bool]
_IN_PYTHON: Final = 1 << 9  # flag of a type that a class statement makes


class Unseen:
    """A leaf for an attribute that is neither made of tensors nor of plain values: the step must not read it."""

    __slots__ = ("content",)

    def __init__(self, content: Any) -> None:
        self.content = content


def content_of(leaf: Any) -> Any:
    """A leaf as the user has it."""
    return leaf.content if type(leaf) is Unseen else leaf


def flatten(tree: Any, is_leaf: IsLeaf | None = None) -> tuple[list[Any], pytree.TreeSpec]:
    """The leaves of a tree, and its structure, for `pytree.tree_unflatten`, which makes objects of the same types."""
    leaves, structure = pytree.tree_flatten(tree, is_leaf)
    if _are_plain(leaves):
        return leaves, structure
    return pytree.tree_flatten(_Opener(is_leaf).opened(leaves, structure), is_leaf)


def leaves_of(tree: Any) -> list[Any]:
    """The leaves alone."""
    leaves = pytree.tree_leaves(tree)
    return leaves if _are_plain(leaves) else flatten(tree)[0]


def flatten_with_path(tree: Any) -> list[tuple[pytree.KeyPath, Any]]:
    """The leaves with the ways to them."""
    leaves, structure = pytree.tree_flatten(tree)
    opened = tree if _are_plain(leaves) else _Opener(None).opened(leaves, structure)
    return pytree.tree_flatten_with_path(opened)[0]


def _are_plain(leaves: Iterable[Any]) -> bool:
    """Whether there is no object to open; fast for tensors and plain values."""
    kinds = set(map(type, leaves))
    return kinds <= _PLAIN or all(_slots_of(kind) is None for kind in kinds - _PLAIN)


class _Form(NamedTuple):
    """What an object is beside its leaves: its type, the names of its attributes, the keys of its entries.

    `table` names the attribute, a dict, that the entries are in; None where the object is a dict itself.
    """

    kind: type
    attributes: tuple[str, ...]
    keys: tuple[Any, ...]
    table: str | None


class _Opened:
    """An object as PyTorch's trees can take it apart: contents of its attributes, then its entries."""

    __slots__ = ("contents", "form")

    def __init__(self, form: _Form, contents: list[Any]) -> None:
        self.form, self.contents = form, contents


class _Opener:
    """Opens the objects in a tree; one that it is inside of stays a leaf."""

    def __init__(self, is_leaf: IsLeaf | None) -> None:
        self._is_leaf = is_leaf
        self._around: list[int] = []

    def opened(self, leaves: Iterable[Any], structure: pytree.TreeSpec) -> Any:
        """A tree with its objects opened."""
        made = [self._object(leaf) if self._is_opened(leaf) else leaf for leaf in leaves]
        return pytree.tree_unflatten(made, structure)

    def _is_opened(self, leaf: Any) -> bool:
        if not is_object(leaf) or id(leaf) in self._around:
            return False
        return self._is_leaf is None or not self._is_leaf(leaf)

    def _object(self, holder: Any) -> _Opened:
        kind, attributes = type(holder), dict(_attributes(holder))
        table, entries = None, {}
        if issubclass(kind, dict):
            entries = copied(holder)
        elif issubclass(kind, Mapping):
            table = next((name for name, content in attributes.items() if type(content) is dict), None)
            entries = {} if table is None else attributes.pop(table)
        self._around.append(id(holder))
        contents = [self._opened(content, closed=True) for content in attributes.values()]
        contents += [self._opened(content, closed=False) for content in entries.values()]
        self._around.pop()
        return _Opened(_Form(kind, tuple(attributes), tuple(entries), table), contents)

    def _opened(self, content: Any, *, closed: bool) -> Any:
        """An entry, or an attribute, which is `Unseen` where it holds what is neither a tensor nor a plain value."""
        if type(content) in _PLAIN:
            return content
        leaves, structure = pytree.tree_flatten(content, self._is_leaf)
        if not closed or all(self._is_known(leaf) for leaf in leaves):
            return self.opened(leaves, structure)
        return content if self._is_leaf is not None and self._is_leaf(content) else Unseen(content)

    def _is_known(self, leaf: Any) -> bool:
        told = is_unread(leaf) or isinstance(leaf, (torch.Tensor, Unseen)) or is_scalar(leaf)
        return told or self._is_opened(leaf)


def is_object(leaf: Any) -> bool:
    """Whether a leaf is an object to open. Asks its type alone: it may be a stand-in that nothing may look at."""
    kind = type(leaf)
    return kind not in _PLAIN and _slots_of(kind) is not None


def has_slots(kind: type) -> bool:
    """Whether the objects of a type that is opened keep something in slots."""
    return bool(_slots_of(kind))


def _slots_of(kind: type) -> dict[str, Any] | None:
    """The slots of the objects of a type; None for types whose objects are not opened."""
    if kind not in _known_slots:
        members = [member for base in kind.__mro__ for member in vars(base).items()]
        slots = {name: member for name, member in members if isinstance(member, types.MemberDescriptorType)}
        _known_slots[kind] = slots if _is_opened(kind) else None
    return _known_slots[kind]


_known_slots: weakref.WeakKeyDictionary[type, dict[str, Any] | None] = weakref.WeakKeyDictionary()


def _is_opened(kind: type) -> bool:
    if not (issubclass(kind, Mapping) or hasattr(kind, "__dataclass_fields__")):
        return False
    is_alike = all(base in _MADE_ALIKE or base.__flags__ & _IN_PYTHON for base in kind.__mro__)
    return is_alike and not issubclass(kind, (torch.Tensor, torch.nn.Module))


def _attributes(holder: Any) -> Iterator[tuple[str, Any]]:
    for name, member in (_slots_of(type(holder)) or {}).items():
        try:
            yield name, member.__get__(holder)
        except AttributeError:  # a slot that nothing has been put into
            continue
    yield from (attributes_of(holder) or {}).items()


def attributes_of(holder: Any) -> dict[str, Any] | None:
    """The dict of an object's attributes; None where all of them are slots."""
    try:
        attributes: dict[str, Any] = object.__getattribute__(holder, "__dict__")
    except AttributeError:
        return None
    return attributes


def _with_keys(opened: _Opened) -> tuple[list[tuple[pytree.KeyEntry, Any]], _Form]:
    form = opened.form
    keys: list[pytree.KeyEntry] = [
        *map(pytree.GetAttrKey, form.attributes),
        *map(pytree.MappingKey, form.keys),
    ]
    return list(zip(keys, opened.contents, strict=True)), form


def _closed(contents: Iterable[Any], form: _Form) -> Any:
    """An object of the same type with other contents."""
    base: Any = next((base for base in _DICTS if issubclass(form.kind, base)), object)
    made = base.__new__(form.kind)
    slots = _slots_of(form.kind) or {}
    found = list(map(content_of, contents))
    held = dict(zip(form.attributes, found, strict=False))
    entries = dict(zip(form.keys, found[len(held) :], strict=True))
    if form.table is not None:
        held[form.table] = entries
    for name, content in held.items():
        if name in slots:
            slots[name].__set__(made, content)
        else:
            object.__getattribute__(made, "__dict__")[name] = content
    if base is not object:
        for key, content in entries.items():
            base.__setitem__(made, key, content)
    return made


# The only type that trees learn, and one of ours: what users and libraries register is theirs alone.
pytree.register_pytree_node(
    _Opened, lambda opened: (opened.contents, opened.form), _closed, flatten_with_keys_fn=_with_keys
)
