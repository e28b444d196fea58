"""Values that the program does not read: they cost no plan, whatever they are kept in; what is read still does."""

from __future__ import annotations

import collections
import dataclasses
import types

import pytest
import torch

from frontends.steps import batch, net, sgd
from neaptide.errors import StepMismatch
from neaptide.frontends.objects.unread import ReadError, StandIns, UnreadNames
from support.step_checks import planned
from support.together import together


@dataclasses.dataclass
class Progress:
    step: int = 0
    mean: float = 0.0


class Run:
    """A user's run: one object holds what trains and what is only counted and shown."""

    scale = 0.5
    seen = 0

    def __init__(self):
        torch.manual_seed(0)
        self.parts = {
            "model": net(),
            "epoch": 3,
            "losses": [],
            "progress": Progress(),
            "last": collections.deque([0]),
        }
        self.parts["optimizer"] = sgd(self.parts["model"], momentum=0.9)
        self.step = 0
        self.rows = [self.parts["model"], 0, torch.zeros(())]
        self.table = collections.defaultdict(float, factor=2.0, total=0.0)
        self.shown = []

    def update(self, x, factor=1.0):
        loss = self.parts["model"](x).square().mean() * factor
        loss.backward()
        self.parts["optimizer"].step()
        self.parts["optimizer"].zero_grad()
        return loss.detach()

    def in_a_dict(self, x, _i):
        loss = self.update(x)
        self.parts["losses"].append(loss.item())
        self.parts["epoch"] += 1
        return loss

    def in_an_object_in_a_dict(self, x, _i):
        loss = self.update(x)
        progress = self.parts["progress"]
        progress.step += 1
        progress.mean += (loss.item() - progress.mean) / progress.step
        return dataclasses.asdict(progress)

    def in_a_list_beside_a_tensor(self, x, _i):
        loss = self.update(x)
        self.rows[2] = self.rows[2] + loss
        self.rows[1] += len(x)
        return self.rows[2] / self.rows[1]

    def under_the_name_of_a_method(self, x, _i):
        loss = self.update(x)
        self.step += 1
        if self.step % 2 == 0:
            self.shown.append(f"{self.step}: {loss.item():.4f}")
        return loss

    def in_a_table_that_is_read(self, x, _i):
        loss = self.update(x, self.table["factor"])
        self.table["total"] += loss.item()
        return loss

    def of_the_class(self, x, _i):
        loss = self.update(x, self.scale)
        type(self).seen += 1
        return loss

    def of_the_call(self, x, i):
        loss = self.update(x)
        if i % 2 == 0:
            self.shown.append((i, [value.item() for value in (loss, loss + 1)]))
        return loss

    def left(self):
        kept = [self.parts["model"].state_dict(), self.parts["losses"], vars(self.parts["progress"])]
        kept += [list(self.parts["last"]), self.parts["epoch"], self.step, self.rows[1:], dict(self.table)]
        return plain([*kept, self.shown, type(self).seen])


def plain(item):
    """Python state as data that compares."""
    if isinstance(item, torch.Tensor):
        return item.tolist()
    if isinstance(item, dict):
        return {key: plain(content) for key, content in item.items()}
    return [plain(content) for content in item] if isinstance(item, (list, tuple)) else item


STEPS = [name for name in vars(Run) if name.startswith(("in_", "under_", "of_", "as_"))]


@together("name", STEPS, quick=("in_a_dict", "in_a_table_that_is_read", "of_the_call"))
def test_what_only_host_code_reads_is_no_guard(name):
    found = []
    for is_planned in (False, True):
        run, Run.seen = Run(), 0
        step = getattr(run, name)
        torch.manual_seed(1)
        batches = [batch() for _ in range(4)]
        call = planned(step, batches[0], further=(0,), on_mismatch="error") if is_planned else step
        results = [plain(call(x, i)) for i, x in enumerate(batches)]
        found.append((results, run.left()))
    assert found[0] == found[1]


def test_text_numbers_and_names_in_a_batch_may_be_unread():
    run, eager = Run(), Run()
    call = planned(
        lambda batch: run.update(batch["x"]), {"x": batch(), "id": "a", "rows": [1, 2]}, on_mismatch="error"
    )
    for i in range(3):
        x = batch()
        found = call({"x": x, "id": f"sample {i}", "rows": [i, 2.5] if i > 3 else [i, i]})
        assert torch.equal(found, eager.update(x))


class Reads(Run):
    """Steps that read what changes, in ways that are easily overlooked."""

    def __init__(self):
        super().__init__()
        self.ratio = types.SimpleNamespace(now=0)
        self.names = ["a"]

    def by_its_truth(self, x, i):
        return self.update(x, 2.0 if i else 1.0)

    def by_its_type(self, x, i):
        return self.update(x, 2.0 if isinstance(i, int) and i > 0 else 1.0)

    def in_a_tensor(self, x, i):
        return self.update(torch.add(x, i))

    def as_a_size(self, x, i):
        return self.update(x[: 2 + i])

    def and_catches_everything(self, x, i):
        try:
            factor = float(i) + 1.0
        except BaseException:  # noqa: BLE001 - as careless as can be
            factor = 1.0
        return self.update(x, factor)

    def by_comparison(self, x, i):
        return self.update(x, 2.0 if i == 1 else 1.0)

    def of_the_state(self, x, _i):
        loss = self.update(x, 1.0 + self.ratio.now)
        self.shown.append(loss.item())
        return loss

    def of_a_length(self, x, _i):
        return self.update(x, float(len(self.names)))


READS = [name for name in vars(Reads) if name.startswith(("by_", "as_", "in_", "and_", "of_"))]


@together("name", READS, quick=("by_its_type", "as_a_size", "and_catches_everything", "of_the_state"))
def test_what_the_program_reads_stays_a_guard(name):
    (run, eager) = (Reads(), Reads())
    call = planned(getattr(run, name), batch(), further=(0,))
    for i in (0, 1, 2, 1):
        x = batch()
        for each in (run, eager):
            each.ratio.now = i
            each.names[:] = ["a"] * (i + 1)  # the same list: its length is what differs
        assert torch.equal(call(x, i), getattr(eager, name)(x, i))
    assert call.counts.replans


LOOKS = (bool, len, str, float, hash, list, "{}".format)
LOOKS += (lambda x: x + 1, lambda x: 1 + x, lambda x: x > 1, lambda x: x.name, lambda x: x[0])
LOOKS += (lambda x: isinstance(x, int), lambda x: torch.ones(2) * x, lambda x: torch.add(torch.ones(2), x))


@together("look", LOOKS)
def test_every_look_at_a_stand_in_is_noted(look):
    stand_ins = StandIns()
    with pytest.raises(ReadError):
        look(stand_ins.of_argument(3))
    assert stand_ins.read == UnreadNames(arguments=frozenset({3}))


def test_a_number_of_another_type_is_another_program():
    run = Run()
    call = planned(run.of_the_call, batch(), further=(0,), on_mismatch="error")
    with pytest.raises(StepMismatch):
        call(batch(), 0.5)
