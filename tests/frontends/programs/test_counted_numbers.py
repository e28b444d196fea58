"""Numbers that a step counts in between its tensor operations are inputs and outputs of its program."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from frontends.steps import batch, net, sgd, update
from neaptide.errors import CaptureError
from neaptide.frontends.torch_step import capture_step
from neaptide.frontends.trace import step_trace
from neaptide.runtime.steps.planned_step import PlannedStep
from support.step_checks import as_variant, assert_like_eager, assert_same_bits, planned
from support.together import together

DONE = 0


class Average:
    """The usual meter."""

    def __init__(self):
        self.last, self.sum, self.count, self.mean = 0.0, 0.0, 0, 0.0

    def update(self, value, count=1):
        self.last = value
        self.sum += value * count
        self.count += count
        self.mean = self.sum / self.count


@dataclasses.dataclass
class Totals:
    rows: int = 0
    decayed: float = 1.0


class Scheduled:
    """A schedule of its own around an optimizer: the rate is a number of the count."""

    def __init__(self, optimizer):
        self.optimizer, self.n, self.rate = optimizer, 0, 0.0

    def step(self):
        self.n += 1
        self.rate = 0.2 * min(self.n**-0.5, self.n * 4**-1.5)
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate
        self.optimizer.step()


class Loop:
    """A user's loop; each method is a step that counts in front of its backward pass."""

    calls = 0

    def __init__(self):
        torch.manual_seed(0)
        self.model = net()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.average, self.totals = Average(), Totals()
        self.numbers = {"n": 3, "sum": 0.5, "loss": torch.zeros(())}
        self.shown = []
        self.scheduled = Scheduled(self.optimizer)
        self.n = 0

    def descend(self, loss):
        return update(loss, self.optimizer)

    def a_meter(self, x):
        loss = self.model(x).square().mean()
        self.average.update(loss.item(), len(x))
        return self.descend(loss)

    def a_data_class(self, x):
        loss = self.model(x).square().mean()
        self.totals.rows += x.shape[0]
        self.totals.decayed *= 0.5
        return self.descend(loss)

    def entries_beside_a_tensor(self, x):
        loss = self.model(x).square().mean()
        self.numbers["n"] += 1
        self.numbers["loss"] = self.numbers["loss"] * 0.5 + loss.detach()
        self.numbers["sum"] = 0.9 * self.numbers["sum"] + 0.1 * loss.item()
        return self.descend(loss)

    def a_global_and_a_class(self, x):
        global DONE  # noqa: PLW0603
        DONE += 1
        type(self).calls += 2
        return self.descend(self.model(x).square().mean())

    def in_a_function_that_trains(self, x):
        def inner(part):
            self.n += 1
            return self.descend(self.model(part).square().mean())

        return inner(x[:3]) + inner(x[3:])

    def a_rate_that_is_read(self, x):
        self.n += 1
        return self.descend(self.model(x).square().mean() / self.n)

    def a_rate_that_is_read_behind(self, x):
        loss = self.descend(self.model(x).square().mean() * (1.0 + self.n))
        self.n += 1
        return loss

    def every_second_call(self, x):
        self.n += 1
        loss = self.model(x).square().mean()
        return self.descend(loss * 2.0 if self.n % 2 == 0 else loss)

    def a_rate_of_a_schedule_around_the_optimizer(self, x):
        loss = self.model(x).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.scheduled.step()
        return loss.detach()

    def a_rate_and_a_beta_in_front(self, x):
        self.n += 1
        group = self.optimizer.param_groups[0]
        group["lr"] = 0.05 * (1 + math.cos(math.pi * self.n / 10))
        group["weight_decay"] = 0.1 / self.n
        return self.descend(self.model(x).square().mean())

    def a_rate_that_drops_once(self, x):
        self.n += 1
        self.optimizer.param_groups[0]["lr"] = 0.1 if self.n < 3 else 0.01
        return self.descend(self.model(x).square().mean())

    def a_rate_of_milestones(self, x):
        self.n += 1
        self.optimizer.param_groups[0]["lr"] = 0.1 * 0.5 ** sum(self.n >= m for m in (2, 4))
        return self.descend(self.model(x).square().mean())

    def and_shows_it_behind(self, x):
        self.n += 1
        loss = self.descend(self.model(x).square().mean())
        self.shown.append(f"{self.n}: {loss.item():.4f}")
        return loss


STEPS = [name for name in vars(Loop) if name[0] != "_" and name not in {"calls", "descend"}]
SELDOM = {
    "a_data_class",
    "a_rate_of_milestones",
    "and_shows_it_behind",
    "a_global_and_a_class",
    "in_a_function_that_trains",
    "a_rate_that_is_read",
    "a_rate_that_is_read_behind",
    "a_rate_of_a_schedule_around_the_optimizer",
    "a_rate_and_a_beta_in_front",
}


def counting(name, kind=None):
    def make():
        global DONE  # noqa: PLW0603
        DONE = Loop.calls = 0
        loop = (kind or Loop)()
        return getattr(loop, name), loop

    return make


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in SELDOM else ()) for name in STEPS]
)
def test_four_calls_leave_what_eager_leaves(name):
    run = assert_like_eager(counting(name), on_mismatch="error")
    assert run.counts.planned == 4


@pytest.mark.slow
def test_a_verify_run_on_fresh_objects_agrees():
    assert_same_bits(lambda: (Loop().a_meter, batch()))


class Odd(Loop):
    def asks_for_the_type(self, x):
        self.n += 1
        return self.descend(self.model(x).square().mean() * (2.0 if type(self.n) is int else 1.0))

    def counts_only_integers(self, x):
        self.n = self.n + 1 if type(self.n) is int else 0
        return self.descend(self.model(x).square().mean())

    def puts_a_text_there(self, x):
        self.n = f"{self.n}a"
        return self.descend(self.model(x).square().mean())


@together("name", ["asks_for_the_type", "counts_only_integers", "puts_a_text_there"], quick=(0, 2))
def test_what_more_than_arithmetic_decides_is_refused(name):
    odd = Odd()
    with pytest.raises(CaptureError, match=r"writes self\.n"):
        capture_step(getattr(odd, name), (batch(),))
    assert odd.n == 0


def test_a_count_that_chooses_from_a_list_is_refused_with_the_line_that_chooses():
    class Listed(Loop):
        def step(self, x):
            self.n += 1
            rate = [0.1, 0.05, 0.01][self.n]  # HERE
            self.optimizer.param_groups[0]["lr"] = rate
            return self.descend(self.model(x).square().mean())

    with pytest.raises(CaptureError, match=r"writes self\.n") as caught:
        capture_step(Listed().step, (batch(),))
    assert "cannot count in self.n" in caught.value.next_step
    assert "[self.n]  # HERE" in str(caught.value)


def test_a_plain_optimizer_counts_as_well():
    model = net()
    optimizer, count = sgd(model), 0

    def step(x):
        nonlocal count
        loss = model(x).square().mean()
        count += len(x)
        return update(loss, optimizer)

    run = planned(step, batch(), on_mismatch="error")
    for _ in range(3):
        run(batch())
    assert count == 18
    assert type(count) is int


class Rare(Loop):
    """Steps that do something at every third call only."""

    def accumulates(self, x):
        self.n += 1
        (self.model(x).square().mean() / 3).backward()
        if self.n % 3 == 0:
            self.optimizer.step()
            self.optimizer.zero_grad()
        return self.n

    def begins_anew(self, x):
        self.n = self.n + 1 if self.n < 2 else 0
        return self.descend(self.model(x).square().mean() * (3.0 if self.n == 0 else 1.0))

    def shows_it_behind(self, x):
        self.n += 1
        loss = self.descend(self.model(x).square().mean())
        if self.n % 3 == 0:
            self.shown.append(f"{self.n}: {loss.item():.4f}")
        return loss

    def switches_a_flag(self, x):
        self.n += 1
        if self.n % 3 == 0:
            self.numbers["late"] = True
        return self.descend(self.model(x).square().mean() * (2.0 if "late" in self.numbers else 1.0))

    def begins_a_stage(self, x):
        self.n += 1
        self.totals.rows = 0 if self.n < 3 else 1
        return self.descend(self.model(x).square().mean() * (2.0 if self.totals.rows == 1 else 1.0))

    def shows_it_in_front(self, x):
        self.n += 1
        if self.n % 3 == 0:
            self.shown.append(self.n)  # HERE
        return self.descend(self.model(x).square().mean())


def by_calls(step, _batch=None, **options):
    def make(args, kwargs, changing):
        return as_variant(capture_step(step, args, kwargs, changing=changing, replans=True))

    return PlannedStep(step, make, **options)


@pytest.mark.parametrize(
    ("name", "replans"),
    [
        ("accumulates", 1),
        pytest.param("begins_anew", 0, marks=pytest.mark.slow),
        pytest.param("begins_a_stage", 0, marks=pytest.mark.slow),
        pytest.param("shows_it_behind", 0, marks=pytest.mark.slow),
        pytest.param("switches_a_flag", 2, marks=pytest.mark.slow),
    ],
)
def test_what_counts_lead_to_later_is_planned_from_the_start(name, replans):
    run = assert_like_eager(counting(name, Rare), calls=7, run_by=by_calls)
    assert run.counts.planned == 7
    assert run.counts.replans <= replans, run.counts.describe()


def test_a_later_call_that_cannot_be_captured_is_named_at_the_first_call():
    rare = Rare()
    with pytest.raises(CaptureError, match=r"at call 3, .* writes self\.shown") as caught:
        by_calls(rare.shows_it_in_front)(batch())
    assert "self.shown.append(self.n)  # HERE" in caught.value.where
    assert 'on_mismatch="eager"' in caught.value.next_step
    assert rare.n == 0


@pytest.mark.slow
def test_a_later_call_that_cannot_be_captured_runs_eagerly_where_that_is_asked_for():
    run = assert_like_eager(counting("shows_it_in_front", Rare), calls=7, on_mismatch="eager")
    assert (run.counts.planned, run.counts.eager) == (5, 2)


class Logged(Loop):
    """It counts between backward passes, and what it does after them is no tensor operation."""

    def step(self, micro_batches):
        total = 0.0
        for x in micro_batches:
            loss = self.model(x).square().mean()
            loss.backward()
            total += loss.item()
            self.n += len(x)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.shown.append(f"{self.n}: {total:.3f}")
        return total


def test_a_step_that_counts_and_logs_is_run_no_more_than_it_must(monkeypatch):
    traces = []
    run = step_trace._Tracer.run
    monkeypatch.setattr(step_trace._Tracer, "run", lambda tracer: traces.append(1) or run(tracer))
    captured = capture_step(Logged().step, ([batch(), batch()],))
    # The whole; up to its first effect; twice the statement in front of that; with the count as a symbol, which is the first
    # program, and as a number; the program of later steps.
    assert len(traces) == 7
    assert captured.host is not None
    assert captured.state.counted == {"self.n"}
    parts = lambda _call: [batch(), batch()]  # noqa: E731
    assert_like_eager(counting("step", Logged), calls=3, batches=parts, on_mismatch="error")
