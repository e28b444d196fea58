"""Python state that a step writes once and finds in place from then on is no reason to refuse it."""

from __future__ import annotations

import types

import pytest
import torch

from frontends.steps import batch, net, sgd, update
from neaptide.errors import CaptureError, PlanMismatch, StepMismatch
from neaptide.frontends.torch_step import capture_step, rebind_step
from neaptide.runtime.steps.planned_step import PlannedStep
from support.step_checks import as_variant, assert_like_eager, planned, together_made


class Lazy:
    """A step that decides what it is when it first runs, as model libraries do."""

    def __init__(self, **entries):
        torch.manual_seed(0)
        self.model = net()
        self.optimizer = sgd(self.model, momentum=0.9)
        self.config = types.SimpleNamespace(kind=None, rows=None, shape=None)
        self.table = {}
        self.built = False
        vars(self).update(entries)

    def update(self, out):
        return update(out.square().mean(), self.optimizer)

    def decides(self, x):
        if self.config.kind is None:
            self.config.kind = "wide" if x.shape[1] > 2 else "narrow"
        out = self.model(x)
        return self.update(out if self.config.kind == "wide" else out * 0.5)

    def adds_an_entry(self, x):
        if len(x) not in self.table:
            self.table[len(x)] = 2.0
        return self.update(self.model(x) * self.table[len(x)])

    def adds_an_attribute(self, x):
        if not hasattr(self, "scale"):
            self.scale = 3.0
        return self.update(self.model(x) * self.scale)

    def writes_every_time(self, x):
        self.config.rows = len(x)
        self.config.shape = tuple(x.shape)
        return self.update(self.model(x) / self.config.rows)

    def sets_a_flag(self, x):
        if not self.built:
            self.built = True
        return self.update(self.model(x))


KINDS = ["decides", "adds_an_entry", "adds_an_attribute", "writes_every_time", "sets_a_flag"]


def test_the_plan_runs_as_eager_and_leaves_the_same_state():
    every = together_made(*(lambda kind=kind: (getattr(Lazy(), kind),) for kind in KINDS))
    run = assert_like_eager(every, calls=3, on_mismatch="error")
    assert run.counts.planned == 3


def test_a_capture_is_put_on_other_objects_before_and_after_their_first_write():
    captured = capture_step(Lazy().decides, (batch(),))
    fresh = Lazy()
    assert rebind_step(captured, fresh.decides, (batch(),)).first_writes
    assert fresh.config.kind is None
    written = types.SimpleNamespace(kind="wide", rows=None, shape=None)
    rebind_step(captured, Lazy(config=written).decides, (batch(),))
    written.kind = "narrow"
    with pytest.raises(PlanMismatch, match="kind"):
        rebind_step(captured, Lazy(config=written).decides, (batch(),))
    with pytest.raises(PlanMismatch, match="kind"):
        rebind_step(captured, Lazy(config=types.SimpleNamespace()).decides, (batch(),))


def test_another_value_is_another_program_and_a_mismatch_writes_nothing():
    lazy = Lazy()
    run = planned(lazy.decides, batch(), on_mismatch="error")
    with pytest.raises(StepMismatch):
        run(torch.randn(3, 4))
    assert lazy.config.kind is None
    run(batch())
    lazy.config.kind = "narrow"
    with pytest.raises(StepMismatch, match="kind"):
        run(batch())
    assert lazy.config.kind == "narrow"


def test_a_first_call_that_computes_something_else_is_refused():
    class Odd(Lazy):
        def step(self, x):
            out = self.model(x)
            if not self.built:
                self.built = True
                out = out * 2
            return self.update(out)

    odd = Odd()
    with pytest.raises(CaptureError, match="something else from then on") as caught:
        capture_step(odd.step, (batch(),))
    assert "call the step once" in str(caught.value)
    assert odd.built is False
    odd.step(batch())
    assert capture_step(odd.step, (batch(),))


def test_what_changes_at_every_call_is_still_refused():
    class Counts(Lazy):
        def step(self, x):
            self.config.rows = (self.config.rows or 0) + 1
            return self.update(self.model(x) * self.config.rows)

    counts = Counts()
    with pytest.raises(CaptureError, match=r"writes self\.config\.rows"):
        capture_step(counts.step, (batch(),))
    assert counts.config.rows is None


class FirstCalls(Lazy):
    """Steps whose first call is another program than all later ones."""

    average, parts = 0.0, None

    def __init__(self, **entries):
        super().__init__(average=0.0, totals={"loss": 0}, **entries)
        self.drop = torch.nn.Dropout(0.5)

    def an_average_that_begins_as_a_number(self, x):
        out = self.model(x)
        self.average = 0.9 * self.average + 0.1 * out.square().mean().detach()
        return self.update(out)

    def a_total_that_is_read(self, x):
        out = self.model(x)
        self.totals["loss"] += out.detach().abs().mean()
        return self.update(out / (1 + self.totals["loss"]))

    def nothing_at_first(self, x):
        out = self.model(x)
        seen = out.detach().mean(0)
        self.parts = seen if self.parts is None else torch.lerp(self.parts, seen, 0.1)
        return self.update(out + self.parts)

    def a_flag_beside_a_tensor(self, x):
        out = self.model(x)
        if not self.built:
            self.built, self.kind, self.shift = True, "built", out.detach().mean(0)
        return self.update(out - self.shift)

    def a_mode_of_a_module_of_torch(self, x):
        out = self.drop(self.model(x))
        self.drop.eval()
        return self.update(out + self.drop(out))


FIRST_CALLS = [name for name in vars(FirstCalls) if name[:2] in {"a_", "an", "no"}]


def as_they_come(step, batch, **options):
    with pytest.raises(CaptureError):
        capture_step(step, (batch,))

    def make(args, kwargs, changing):
        return as_variant(capture_step(step, args, kwargs, changing=changing, replans=True))

    return PlannedStep(step, make, **options)


SOME = {"nothing_at_first", "a_mode_of_a_module_of_torch"}


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind in SOME else pytest.mark.slow) for kind in FIRST_CALLS]
)
def test_a_first_call_may_be_another_program_where_calls_are_captured_as_they_come(kind):
    run = assert_like_eager(lambda: (getattr(FirstCalls(), kind),), run_by=as_they_come, verify="first")
    assert run.counts.planned == 4
    assert run.counts.replans == 1
    assert (run.counts.verified.calls, run.counts.verified.differed) == (2, 0)
