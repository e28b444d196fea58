"""What a step changes in the lists, dicts and objects that it is called with is changed in the caller's at each call."""

from __future__ import annotations

import collections
import dataclasses

import pytest
import torch
from torch import nn
from torch.nn import functional

from frontends.steps import update
from neaptide.errors import CaptureError
from neaptide.frontends.torch_step import capture_step
from neaptide.runtime.steps.planned_step import PlannedStep
from programs.reachable import Snapshot
from support.step_checks import as_variant, assert_like_eager, parts_of
from support.together import together

ROWS = 6


class Trainer:
    """Each method is a step that changes its batch."""

    def __init__(self):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, 3))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.05)
        self.seen = []

    def update(self, x, y):
        return update(functional.cross_entropy(self.model(x), y), self.optimizer)

    def takes_out(self, batch):
        y = batch.pop("y")
        return self.update(**batch, y=y)

    def deletes_and_renames(self, batch):
        batch["rows"] = batch.pop("x")
        del batch["y"]
        return self.update(batch["rows"], batch["rows"].argmax(1) % 3)

    def puts_in(self, batch):
        batch["x"] = batch["x"] * 0.5
        batch["loss"] = self.update(batch["x"], batch["y"])
        batch["mean"], batch["rows"] = batch["loss"].item(), len(batch["x"])
        return batch["loss"]

    def a_list(self, batch):
        y, x = batch.pop(), batch.pop(0)
        batch.insert(0, x + 1)
        return self.update(batch[0], y)

    def moves_what_lies_deeper(self, batch):
        inner = batch.pop("inner")
        batch["outer"] = {"again": inner, "twice": [part * 2 for part in inner["parts"]]}
        inner["parts"].append(inner["parts"].pop(0))
        return self.update(inner["parts"][0], batch["y"])

    def attributes(self, batch):
        batch.logits = self.model(batch.x).detach()
        batch.x, x = None, batch.x
        return self.update(x, batch.y)

    def a_mapping(self, batch):
        y = batch.pop("y")
        batch["x"] = functional.dropout(batch["x"])
        return self.update(batch["x"], y)

    def a_queue_and_entries_made_by_reading(self, batch):
        batch["queue"].append(batch["x"].mean())
        batch["shapes"].append(tuple(batch["x"].shape))
        return self.update(batch["queue"].popleft(), batch["y"])

    def and_writes_in_place(self, batch):
        batch["old"] = batch["x"].clone()
        batch["x"].mul_(0.5)
        return self.update(batch["x"], batch.pop("y"))

    def and_logs(self, batch):
        name = batch.pop("name")
        loss = self.update(batch["x"], batch.pop("y"))
        self.seen.append((name, loss.item(), list(batch)))
        return loss

    def empties_it(self, batch):
        x, y = batch["x"], batch["y"]
        batch.clear()
        return self.update(x, y)

    def keeps_plain_values_alone(self, batch):
        batch["kept"] = {"rows": len(batch["x"]), "tags": []}
        return self.update(batch.pop("x"), batch.pop("y"))

    def puts_back(self, batch):
        y = batch.pop("y")
        loss = self.update(batch["x"], y)
        batch["y"] = y
        return loss


@dataclasses.dataclass
class Sample:
    x: torch.Tensor
    y: torch.Tensor


def made(name, call):
    generator = torch.Generator().manual_seed(call)
    x, y = torch.randn(ROWS, 4, generator=generator), torch.randint(3, (ROWS,), generator=generator)
    if name == "a_list":
        return [x, torch.ones(2), y]
    if name == "attributes":
        return Sample(x, y)
    if name == "a_mapping":
        return collections.UserDict(y=y, x=x)
    if name == "moves_what_lies_deeper":
        return {"y": y, "inner": {"parts": [x, x + 1]}}
    if name == "a_queue_and_entries_made_by_reading":
        return collections.defaultdict(list, x=x, y=y, queue=collections.deque([x, x * 2]))
    return {"name": f"batch {call}", "x": x, "y": y} if name == "and_logs" else {"x": x, "y": y}


def cheaply(step, _batch=None, **options):
    return PlannedStep(step, lambda args, kwargs, _: as_variant(capture_step(step, args, kwargs)), **options)


NAMES = [name for name in vars(Trainer) if name[0] != "_" and name != "update"]


QUICK = {
    "takes_out",
    "puts_in",
    "moves_what_lies_deeper",
    "attributes",
    "a_queue_and_entries_made_by_reading",
    "and_logs",
}


@together("name", NAMES, quick=QUICK)
def test_the_batches_of_the_caller_are_as_after_eager(name):
    make = lambda: (getattr(Trainer(), name),)  # noqa: E731
    run = assert_like_eager(make, batches=lambda call: made(name, call), run_by=cheaply, verify="first")
    assert run.counts.planned == 4
    assert run.counts.verified.calls == 2
    assert not run.counts.verified.differed
    assert run.counts.replans == 0


def test_a_capture_leaves_the_batch_alone():
    trainer, batch = Trainer(), made("moves_what_lies_deeper", 0)
    held = [*parts_of(batch)]
    before = Snapshot({"batch": batch, "held": held})
    assert capture_step(trainer.moves_what_lies_deeper, (batch,)).steady.returned.changes
    assert not Snapshot({"batch": batch, "held": held}).differences(before)


@pytest.mark.parametrize(
    "before", [1, 2]
)  # of the next call, eager raises first; of the one after it, the program
def test_a_call_that_raises_leaves_the_batch_alone(before):
    trainer = Trainer()

    def step(batch):
        y = batch.pop("y")
        loss = trainer.update(batch["x"], y)
        assert loss < 100, "too large"
        return loss

    run = cheaply(step, verify="first")
    for call in range(before):
        run(made("", call))
    bad = made("", 5)
    bad["x"] = bad["x"] / 0
    kept = dict(bad)
    with pytest.raises(AssertionError if before == 1 else RuntimeError):
        run(bad)
    assert list(bad) == list(kept)
    assert all(bad[key] is kept[key] for key in kept)


def test_one_dict_in_two_places_is_refused():
    trainer = Trainer()

    def step(batch, again):
        y = batch.pop("y")
        return trainer.update(batch["x"], again.get("y", y))

    one = made("", 0)
    with pytest.raises(CaptureError, match="changes its argument") as caught:
        capture_step(step, (one, one))
    assert "another place" in caught.value.why
    assert list(one) == ["x", "y"]
    run = cheaply(step)
    run(made("", 0), made("", 0))
    with pytest.raises(CaptureError, match="changes its argument"):
        run(one, one)
    assert list(one) == ["x", "y"]


def test_what_a_program_cannot_make_at_each_call_is_refused_at_its_line():
    trainer = Trainer()

    def step(batch):
        batch["seen"] = {1, 2}  # HERE
        return trainer.update(batch["x"], batch["y"])

    with pytest.raises(CaptureError, match=r"its argument batch\['seen'\]") as caught:
        capture_step(step, (made("", 0),))
    assert 'batch["seen"] = {1, 2}  # HERE' in caught.value.where
    assert "a set" in caught.value.why or "the set" in caught.value.why
    assert "batch = dict(batch)" in caught.value.next_step


def test_a_new_list_in_two_places_is_refused():
    trainer = Trainer()

    def step(batch):
        batch["parts"] = batch["again"] = [batch["x"] * 2]
        return trainer.update(batch["x"], batch["y"])

    with pytest.raises(CaptureError, match=r"its argument batch\['parts'\]") as caught:
        capture_step(step, (made("", 0),))
    assert "two places" in caught.value.why


@dataclasses.dataclass(slots=True)
class Slotted:
    x: torch.Tensor
    y: torch.Tensor


def test_slots_of_an_argument_are_not_written():
    trainer = Trainer()

    def step(batch):
        batch.x = batch.x * 2
        return trainer.update(batch.x, batch.y)

    with pytest.raises(CaptureError, match="changes its argument batch") as caught:
        capture_step(step, (Slotted(**made("", 0)),))
    assert "Slotted" in caught.value.why
