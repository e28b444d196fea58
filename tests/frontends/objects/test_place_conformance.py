"""What `frontends.objects.places.Place` promises, of every kind of place."""

from __future__ import annotations

import contextvars
import functools
from collections import OrderedDict, namedtuple

import pytest
import torch

from neaptide.frontends.objects.places import (
    GONE,
    MISSING,
    AttributePlace,
    ContextPlace,
    ItemPlace,
    Place,
    PositionPlace,
    TensorKeyPlace,
    TuplePlace,
    read,
    swapped,
)
from support.together import together


class Slotted:
    __slots__ = ("x",)
    shared = "before"


def with_default():
    return lambda x="before": x


def slotted():
    made = Slotted()
    made.x = "before"
    return made


def in_context():
    made = contextvars.ContextVar("x")
    made.set("before")
    return made


def in_cell():
    x = "before"
    return (lambda: x).__closure__[0]


Pair = namedtuple("Pair", "left right")
KEY = torch.zeros(1)
MADE = {
    "list": (ItemPlace, lambda: ItemPlace("x", ["before"], 0), True),
    "dict": (ItemPlace, lambda: ItemPlace("x", OrderedDict(x="before"), "x"), True),
    "tensor_key": (TensorKeyPlace, lambda: TensorKeyPlace("x", {KEY: "before"}, KEY), True),
    "slot": (AttributePlace, lambda: AttributePlace("x", slotted(), "x"), True),
    "class": (
        AttributePlace,
        lambda: AttributePlace("x", type("Own", (Slotted,), {"x": "before"}), "x"),
        True,
    ),
    "cell": (AttributePlace, lambda: AttributePlace("x", in_cell(), "cell_contents"), True),
    "default": (PositionPlace, lambda: PositionPlace("x", with_default(), 0), True),
    "partial": (PositionPlace, lambda: PositionPlace("x", functools.partial(print, "before"), 0), True),
    "tuple": (TuplePlace, lambda: TuplePlace("x", ItemPlace("t", [("before", object())], 0), 0), True),
    "named_tuple": (TuplePlace, lambda: TuplePlace("x", ItemPlace("t", [Pair("before", 1)], 0), 0), True),
    "context": (ContextPlace, lambda: ContextPlace("x", in_context()), False),
}
"""By name: the kind, a place where "before" is, and whether it can be gone."""


def kinds_of(kind):
    return {kind.__name__, *(one for sub in kind.__subclasses__() for one in kinds_of(sub))}


def test_every_kind_of_place_is_among_them():
    assert {kind.__name__ for kind, *_ in MADE.values()} == kinds_of(Place) - {"Place"}


@together("name", MADE)
def test_what_is_set_is_there_until_it_is_put_back(name):
    kind, make, _ = MADE[name]
    place, other = make(), make()
    assert type(place) is kind
    assert place.get() == read(place) == "before"
    assert place.identity == place.identity != other.identity
    place.set("after")
    assert place.get() == "after"
    assert other.get() == "before"
    with swapped([(place, "within")]):
        assert place.get() == "within"
    assert place.get() == "after"
    with pytest.raises(KeyError, match="within"), swapped([(place, "within")]):
        raise KeyError(place.get())
    assert place.get() == "after"


@together("name", [name for name, (*_, can_go) in MADE.items() if can_go])
def test_a_place_that_is_gone_raises_one_of_its_errors_and_reads_as_missing(name):
    place = MADE[name][1]()
    key = {
        "slot": "shaved",
        "class": "shaved",
        "cell": "shaved",
        "dict": "shaved",
        "tensor_key": torch.ones(1),
    }
    gone = type(place)("x", place.holder, key.get(name, 7))
    with pytest.raises(GONE):
        gone.get()
    assert read(gone) is MISSING
