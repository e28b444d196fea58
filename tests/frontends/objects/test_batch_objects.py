"""A batch may be an object: a mapping that is no dict, or a dataclass. It is taken apart, guarded and made like a dict."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

import neaptide
from frontends.steps import update
from neaptide.errors import CaptureError
from neaptide.frontends.dims.dynamic_dims import tensors_by_path
from neaptide.frontends.objects.batch_objects import Unseen, flatten, flatten_with_path
from neaptide.frontends.torch_step import capture_step
from support.step_checks import needs_varying_dims
from support.together import together

WIDTH = 4


class Features(Mapping):
    """Reads its entries from a table of its own; none of its methods may be needed to look through it."""

    def __init__(self, table):
        self.scale = 2.0
        self._table = table

    def __getitem__(self, key):
        return self._table[key]

    def __iter__(self):
        return iter(self._table)

    def __len__(self):
        return len(self._table)


class Slotted:
    """A mapping of the kind that keeps its attributes in slots."""

    __slots__ = ("__table", "unset")

    def __init__(self, table):
        self.__table = table

    def __getitem__(self, key):
        return self.__table[key]


class SlottedFeatures(Slotted, Mapping):
    """Likewise."""

    __slots__ = ()

    def __iter__(self):
        return iter(self._Slotted__table)

    def __len__(self):
        return len(self._Slotted__table)


class Named(dict):
    """A dict whose own methods say something else than what it holds."""

    def __init__(self, table):
        super().__init__(table)
        self.name = "named"

    def items(self):
        raise AssertionError

    def __setitem__(self, key, content):
        raise AssertionError


class Ordered(collections.OrderedDict):
    """Neither is a subclass of an ordered one known to PyTorch's trees."""


@dataclasses.dataclass
class Sample:
    """A batch as a dataclass."""

    x: torch.Tensor
    y: torch.Tensor
    weight: float = 1.0
    extra: Any = None

    def __getitem__(self, key):
        return getattr(self, key)


@dataclasses.dataclass(frozen=True, slots=True)
class FrozenSample:
    """A frozen one, in slots, which counts how often it is made by its class."""

    x: torch.Tensor
    y: torch.Tensor

    def __post_init__(self):
        assert isinstance(self.x, torch.Tensor)

    def __getitem__(self, key):
        return getattr(self, key)


def table(rows=3):
    x = torch.randn(rows, WIDTH, generator=torch.Generator().manual_seed(rows))
    return {"x": x, "y": x.flip(0)}


KINDS = {
    "UserDict": collections.UserDict,
    "Mapping": Features,
    "slots": SlottedFeatures,
    "dict": Named,
    "OrderedDict": Ordered,
    "dataclass": lambda entries: Sample(**entries),
    "frozen": lambda entries: FrozenSample(**entries),
    "nested": lambda entries: collections.UserDict(
        x=entries["x"], y=entries["y"], rest=[Sample(**entries), collections.UserDict(entries)]
    ),
}


def make(loss=None):
    torch.manual_seed(0)
    model = nn.Linear(WIDTH, WIDTH)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(batch):
        made = nn.functional.mse_loss(model(batch["x"]), batch["y"])
        return update(made if loss is None else loss(made, batch), optimizer)

    return step, model


@together("kind", KINDS)
def test_an_object_is_taken_apart_and_made_again_and_its_tensors_are_named(kind):
    batch = KINDS[kind](table())
    leaves, structure = flatten(((batch,), {}))
    assert not any(isinstance(leaf, Unseen) for leaf in leaves)
    (again,), _ = pytree.tree_unflatten(leaves, structure)
    assert type(again) is type(batch)
    assert again is not batch
    assert again["x"] is batch["x"]
    assert again["y"] is batch["y"]
    again_leaves, again_structure = flatten(((again,), {}))
    assert again_structure == structure
    assert all(one is other for one, other in zip(leaves, again_leaves, strict=True))
    assert {"batch.x", "batch.y"} <= set(tensors_by_path(lambda batch: None, (batch,), {}))


def test_objects_within_others_have_paths():
    found = tensors_by_path(lambda micro_batches: None, ([collections.UserDict(a=Sample(**table()))],), {})
    assert set(found) == {"micro_batches.0.a.x", "micro_batches.0.a.y"}


@together("kind", KINDS, quick=("Mapping", "dataclass"))
def test_a_step_trains_on_it_as_eager_does(kind):
    (step, model), (eager, reference) = make(), make()
    fast = neaptide.compile_step(step, budget="1GiB", dynamic=False)
    for rows in (3, 3, 5):
        assert torch.equal(fast(KINDS[kind](table(rows))), eager(KINDS[kind](table(rows))))
    assert torch.equal(model.weight, reference.weight)
    assert fast.counts.planned == 3
    assert fast.counts.replans == 1
    assert next(iter(fast.counts.mismatches)).startswith(
        ("batch.x has shape (5, 4)", "batch['x'] has shape (5, 4)")
    )


@needs_varying_dims
@together("kind", ["Mapping", "frozen"], quick=("frozen",))
def test_its_dims_may_vary(kind):
    (step, model), (eager, reference) = make(), make()
    dims = {path: {0: torch.export.Dim("rows", min=1, max=64)} for path in ("batch.x", "batch.y")}
    fast = neaptide.compile_step(step, budget="1GiB", dynamic=dims)
    for rows in (3, 5, 1, 8):
        assert torch.equal(fast(KINDS[kind](table(rows))), eager(KINDS[kind](table(rows))))
    assert torch.equal(model.weight, reference.weight)
    assert fast.counts.replans == 0


def test_types_keys_and_plain_values_are_guarded():
    def loss(made, batch):
        return made * (3.0 if "z" in batch else 1.0) * getattr(batch, "scale", 1.0)

    step, _ = make(loss)
    captured = capture_step(step, (Features(table()),))
    assert captured.agrees((Features(table()),), {})
    changed = Features(table())
    changed.scale = 3.0
    more = Features({**table(), "z": 0})
    for other in (changed, more, collections.UserDict(table()), table()):
        assert not captured.agrees((other,), {})
    told = captured.read_signature((changed,), {}).differences(captured.signature)
    assert told == ("batch.scale is 3.0, was 2.0",)


def test_an_attribute_without_a_value_may_be_there_as_long_as_nobody_reads_it():
    captured = capture_step(make()[0], (Sample(**table(), extra=np.ones(3)),))
    assert captured.agrees((Sample(**table(), extra=np.zeros(2)),), {})
    assert not captured.agrees((Sample(**table(), extra=None),), {})


@together(
    "read",
    [
        lambda made, batch: made * len(batch.extra),
        lambda made, batch: made * float(batch.extra[0]),
        lambda made, batch: made if isinstance(batch.extra, list) else made * 2,
        lambda made, batch: made * sum(1 for _ in batch.extra),
    ],
    quick=(1, 2),
)
def test_an_attribute_without_a_value_that_is_read_is_refused_at_the_line(read):
    step, model = make(read)
    before = model.weight.detach().clone()
    with pytest.raises(CaptureError, match=r"the step reads batch\.extra, a ndarray") as caught:
        capture_step(step, (Sample(**table(), extra=np.ones(3)),))
    assert "lambda made, batch" in caught.value.where
    assert torch.equal(model.weight, before)


def test_an_entry_without_a_value_is_refused_as_in_a_dict():
    with pytest.raises(CaptureError, match="is a ndarray"):
        capture_step(make()[0], (collections.UserDict(table(), z=np.ones(3)),))


def test_an_object_within_itself_ends():
    batch = Sample(**table())
    batch.extra = batch
    leaves, _ = flatten(batch)
    assert isinstance(leaves[-1], Unseen)
    assert leaves[-1].content is batch
    assert len(flatten_with_path(batch)) == len(leaves)


def test_what_a_step_returns_in_an_object_is_of_each_call():
    (step, _), (eager, _) = make(), make()

    def packed(batch):
        return collections.UserDict(loss=step(batch), rows=Sample(batch["x"] + 1, batch["y"]))

    fast = neaptide.compile_step(packed, budget="1GiB")
    for rows in (3, 3):
        found = fast(table(rows))
        assert type(found) is collections.UserDict
        assert torch.equal(found["loss"], eager(table(rows)))
        assert torch.equal(found["rows"].x, table(rows)["x"] + 1)
    assert fast.counts.planned == 2


def test_an_object_of_plain_values_is_returned_itself():
    (step, _), settings = make(), Sample(1, 2)

    def packed(batch):
        return step(batch), settings

    fast = neaptide.compile_step(packed, budget="1GiB")
    assert fast(table())[1] is settings


def test_code_behind_the_program_gets_the_batch_itself():
    seen = []
    step, _ = make()

    def logged(batch):
        loss = step(batch)
        seen.append((batch, batch.extra.sum()))
        return loss

    fast = neaptide.compile_step(logged, budget="1GiB", verify="never")
    batches = [Sample(**table(), extra=np.full(2, number)) for number in range(3)]
    for batch in batches:
        fast(batch)
    assert [total for _, total in seen] == [0, 2, 4]
    assert all(one.x is other.x for (one, _), other in zip(seen, batches, strict=True))


def test_what_others_registered_stays_theirs():
    known = set(pytree.SUPPORTED_NODES)
    capture_step(make()[0], (Sample(**table()),))
    added = set(pytree.SUPPORTED_NODES) - known  # by modules of torch that the capture is the first to import
    assert known <= set(pytree.SUPPORTED_NODES)
    assert all(kind.__module__.startswith("torch.") for kind in added)
