"""Containers whose subclasses do something at each read or write are looked through without it."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque

import pytest
import torch
from torch import nn

from frontends.steps import update
from neaptide.errors import CaptureError
from neaptide.frontends.objects import containers
from neaptide.frontends.torch_step import capture_step
from support.step_checks import planned
from support.together import together

_METHODS = (
    *("__getitem__", "get", "__iter__", "__len__", "items", "keys", "values", "__setitem__", "__delitem__"),
    *("__missing__", "__eq__", "__contains__", "__bool__", "__reversed__", "copy", "clear", "update", "pop"),
    *("popitem", "setdefault", "append", "extend", "insert", "remove", "add", "discard", "move_to_end"),
    *("popleft", "appendleft", "rotate", "index", "count", "__add__", "__or__", "__ior__", "__reduce__"),
)


def hostile(base):
    """A subclass in which every method refuses."""

    def refuse(*_args, **_kwargs):
        raise AssertionError("a method of the user's container was called")

    names = [name for name in _METHODS if hasattr(base, name)]
    entries = dict.fromkeys([*names, "__missing__"], refuse)
    return type(f"Hostile{base.__name__.title()}", (base,), {**entries, "__hash__": object.__hash__})


def held(base, entries):
    """Such a container with entries; those of a dict are numbered by letters."""
    kind = hostile(base)
    made = kind.__new__(kind)
    if issubclass(base, dict):
        method = OrderedDict.__setitem__ if issubclass(base, OrderedDict) else dict.__setitem__
        for key, content in zip("abcdefg", entries, strict=False):
            method(made, key, content)
    elif base in {tuple, frozenset}:
        made = base.__new__(kind, entries)
    elif base is set:
        set.update(made, entries)
    else:
        base.extend(made, entries)
    return made


DICTS = (dict, OrderedDict, defaultdict, Counter)
EVERY = (*DICTS, list, deque, set, tuple, frozenset)


def make_step(kept):
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    weights = torch.randn(2)

    def step(x):
        scale = 2.0 if kept is None else 3.0
        return update((model(x) * weights).square().mean() * scale, optimizer)

    return step


@together("base", EVERY)
def test_a_step_that_names_such_a_container_is_captured_and_leaves_it_alone(base):
    kept = held(base, (0.5, "text", 7, (1, 2)))
    before = containers.copied(kept)
    x = torch.randn(3, 4)
    eager, step = make_step(kept), planned(make_step(kept), x, on_mismatch="error")
    assert [step(x) for _ in range(3)] == [eager(x) for _ in range(3)]
    assert containers.copied(kept) == before


class Factories(OrderedDict):
    """Makes an object at each read, as tables of activation functions do."""

    def __getitem__(self, key):
        return super().__getitem__(key)()

    def get(self, key, default=None):
        return OrderedDict.get(self, key, default) and self[key]


TABLE = Factories(relu=nn.ReLU, tanh=nn.Tanh, gelu=nn.GELU)


def test_a_table_of_factories_keeps_them_and_is_the_same_at_each_call():
    before = dict(zip(TABLE, OrderedDict.values(TABLE), strict=True))
    torch.manual_seed(0)
    model = nn.Linear(4, 4)

    def step(x):
        loss = TABLE["tanh"](model(x)).square().mean()
        loss.backward()
        return loss.detach()

    x = torch.randn(3, 4)
    run = planned(step, x, on_mismatch="error")
    assert run(x) == run(x)
    assert dict(zip(TABLE, OrderedDict.values(TABLE), strict=True)) == before


def test_a_default_dict_gets_no_entry_from_being_looked_at():
    table = defaultdict(list, known=[1.0, 2.0])
    model = nn.Linear(4, 4)

    def step(x):
        loss = model(x).square().mean() * table["known"][1]
        loss.backward()
        return loss.detach()

    x = torch.randn(3, 4)
    run = planned(step, x, on_mismatch="eager")
    del table["known"]
    with pytest.raises(IndexError):
        run(x)  # as eager: the step itself asks for an entry that is not there
    assert containers.copied(table) == {"known": []}


def test_writes_to_such_a_container_are_noticed_and_undone():
    kinds = {
        "counts": Counter(seen=2),
        "ordered": OrderedDict(b=1, a=2),
        "lists": deque(["first", "second"], maxlen=4),
    }

    def clears(x):
        y = x * 2
        kinds["counts"].clear()
        return y.sum()

    def moves(x):
        y = x * 2
        kinds["ordered"].move_to_end("b")
        return y.sum()

    def rotates(x):
        y = x * 2
        kinds["lists"].rotate()
        return y.sum()

    for step, word in ((clears, "seen"), (moves, "ordered"), (rotates, "lists")):
        with pytest.raises(CaptureError, match=word):
            capture_step(lambda x, step=step: step(x).cos(), (torch.randn(3),))
    assert kinds["counts"] == Counter(seen=2)
    assert list(kinds["ordered"]) == ["b", "a"]
    assert list(kinds["lists"]) == ["first", "second"]
