"""Host code behind the last tensor operation runs behind the program: as in eager, call by call, state and all."""

from __future__ import annotations

import functools
import logging
import math
import types

import pytest
import torch
from torch import nn

from frontends.steps import batch, net, sgd
from neaptide.errors import CaptureError, PlanMismatch, StepMismatch
from neaptide.frontends.torch_step import capture_step, rebind_step
from step_checks import assert_same_bits, planned
from together import together

SEEN = 0
logger = logging.getLogger("a user's")


class Meter:
    def __init__(self):
        self.total, self.count = 0.0, 0

    def update(self, value, count=1):
        self.total += value * count
        self.count += count


class Trainer:
    """A user's trainer; the last lines of its steps are for people, not for tensors."""

    def __init__(self):
        torch.manual_seed(0)
        self.model = net()
        self.optimizer = sgd(self.model, momentum=0.9)
        self.scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.5)
        self.meter = Meter()
        self.history = {}
        self.log = []
        self.n = 0
        self.__hidden = 0
        self.ema = 0.0
        self.heat = 1.0
        self.best = math.inf
        self.average = torch.zeros(())
        self.averaged = torch.optim.swa_utils.AveragedModel(self.model)
        self.shown = []

    def update(self, x):
        loss = self.model(x).square().mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss

    def counts(self, x):
        loss = self.update(x)
        self.n += 1
        return loss.detach()

    def counts_in_private(self, x):
        loss = self.update(x)
        self.__hidden += 1
        return loss.detach()

    def counts_globally(self, x):
        global SEEN  # noqa: PLW0603
        loss = self.update(x)
        SEEN += len(x)
        return loss.detach()

    def appends_numbers(self, x):
        loss = self.update(x)
        self.log.append(loss.item())
        return {"loss": float(loss.detach()), "seen": len(self.log)}

    def appends_tensors(self, x):
        loss = self.update(x)
        self.log.append(loss.detach())
        self.log.append(loss)
        return self.log[-1]

    def fills_a_history(self, x):
        loss = self.update(x)
        self.history[len(self.history)] = round(loss.item(), 4)
        return loss.detach()

    def meters(self, x):
        loss = self.update(x)
        self.meter.update(loss.item(), x.size(0))
        return self.meter.total / self.meter.count

    def shows(self, x):
        loss = self.update(x)
        self.shown.append(f"{loss.item():.3f} {loss.detach()}")
        print(f"{loss.item():.3f}")  # noqa: T201
        logger.warning("loss %s", loss.detach())
        return loss.detach()

    def averages(self, x):
        loss = self.update(x)
        self.ema = 0.9 * self.ema + 0.1 * loss.item()
        self.average = 0.9 * self.average + 0.1 * loss.detach()
        return self.ema

    def averages_the_model(self, x):
        loss = self.update(x)
        self.averaged.update_parameters(self.model)
        return loss.detach()

    def keeps_the_best(self, x):
        loss = self.update(x).item()
        if loss < self.best:
            self.best = loss
        return loss

    def schedules(self, x):
        loss = self.model(x).square().mean()
        loss.backward()
        self.optimizer.step()
        self.scheduler.step()
        self.optimizer.zero_grad()
        return loss.detach()

    def measures(self, batch):
        x, y = batch
        out = self.model(x)
        loss = nn.functional.cross_entropy(out, y)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        with torch.no_grad():
            correct = (out.argmax(1) == y).sum()
            self.n += correct.item()
        return {"loss": loss.item(), "accuracy": correct.item() / len(y), "n": self.n}

    def reads_a_parameter(self, x):
        weight, rates = self.model[0].weight, [g["lr"] for g in self.optimizer.param_groups]
        parts = {"norms": [x.norm()]}
        loss = self.update(x)
        parts["norms"].append(weight.norm().item())
        parts["same"] = weight is self.model[0].weight and weight.grad is None
        self.log.append(parts)
        self.log.append(rates)
        return loss.detach()

    def reads_gradients(self, x):
        loss = self.model(x).square().mean()
        loss.backward()
        self.optimizer.step()
        self.log.append([p.grad.norm().item() for p in self.model.parameters()])
        self.optimizer.zero_grad()
        return loss.detach()

    def cools(self, x):
        loss = self.model(x).square().mean() * self.heat
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.heat = self.heat * 0.5
        return loss.detach()

    def returns_early(self, x):
        if len(x) < 2:
            return None
        loss = self.update(x)
        self.n += 1
        return loss.detach()

    def logs_the_rate(self, x):
        loss = self.update(x)
        rate = self.scheduler.get_last_lr()[0]
        rows = len(x)
        self.log.append((rate, rows))
        self.scheduler.step()
        return loss.detach()

    def leaves_before_it_clears(self, x):
        loss = self.model(x).square().mean()
        loss.backward()
        self.optimizer.step()
        self.n += 1
        if self.n == 2:
            return None
        self.optimizer.zero_grad()
        return loss.detach()

    def defines_what_it_shows_with(self, x):
        width = 4
        scale = lambda value: value * 2.0  # noqa: E731

        def shown(value):
            return f"{scale(value):.{width}f}"

        def squared(out):
            return out.square().mean()

        loss = squared(self.model(x))
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.shown.append([shown(value.item()) for value in (loss, squared(x))])
        return max((scale(row.item()) for row in x.sum(1)), key=lambda value: -value)

    def keeps_a_generator_in_a_variable(self, x):
        each = self.model(x).square().mean(1)
        each.mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        rows = (row.item() for row in each)
        largest = max(rows)
        self.shown.append(f"{largest:.4f}")
        return largest

    def adds_in_place(self, x):
        loss = self.update(x)
        total = loss.detach()
        total += 1
        self.log.append(total.item())
        return loss.item()


def with_closure(trainer):
    count, step = 0, trainer.update

    def inner(x, *, scale=2.0, **options):
        nonlocal count
        loss = step(x * scale)
        count += 1
        trainer.log.append((count, loss.item(), sorted(options)))
        return loss.detach()

    return inner


def with_partial(trainer):
    return functools.partial(Trainer.counts, trainer)


class Called:
    def __init__(self, trainer):
        self.trainer = trainer

    def __call__(self, x):
        loss = self.trainer.update(x)
        self.trainer.n += 1
        return loss.item()


BY_METHOD = [
    name
    for name, member in vars(Trainer).items()
    if callable(member) and not name.startswith("_") and name != "update"
]
STEPS = {name: functools.partial(lambda name, trainer: getattr(trainer, name), name) for name in BY_METHOD}
STEPS |= {"closure": with_closure, "partial": with_partial, "callable": Called}


def plain(item):
    """Python state as data that compares."""
    if isinstance(item, torch.Tensor):
        return item.detach().tolist()
    if isinstance(item, dict):
        return {key: plain(content) for key, content in item.items()}
    if isinstance(item, (list, tuple)):
        return [plain(content) for content in item]
    return vars(item) if isinstance(item, Meter) else item


def left_behind(trainer):
    kept = {
        k: v for k, v in vars(trainer).items() if k not in {"model", "optimizer", "scheduler", "averaged"}
    }
    groups = [{k: v for k, v in g.items() if k != "params"} for g in trainer.optimizer.param_groups]
    scheduler = {k: v for k, v in trainer.scheduler.state_dict().items() if k[0] == "_" or k == "last_epoch"}
    tensors = [*trainer.model.parameters(), *trainer.averaged.parameters(), trainer.averaged.n_averaged]
    momenta = [trainer.optimizer.state[p] for p in trainer.model.parameters()]
    gradients = [p.grad for p in trainer.model.parameters()]
    return plain([kept, groups, scheduler, tensors, momenta, gradients, SEEN])


def example(name):
    return (batch(), torch.randint(0, 3, (6,))) if name == "measures" else batch()


@together("name", STEPS, parts=5)
def test_three_steps_leave_what_eager_leaves(name, capsys):
    global SEEN  # noqa: PLW0603
    found = []
    for is_planned in (False, True):
        SEEN = 0
        trainer = Trainer()
        torch.manual_seed(1)
        batches = [example(name) for _ in range(3)]
        step = STEPS[name](trainer)
        before = left_behind(trainer)
        # A step that keeps its gradients once is two programs; all others are one.
        options = {"on_mismatch": "replan" if name == "leaves_before_it_clears" else "error"}
        run = planned(step, batches[0], **options) if is_planned else step
        assert left_behind(trainer) == before, "a capture changes nothing"
        capsys.readouterr()
        results = [plain(run(x)) for x in batches]
        found.append((results, left_behind(trainer), capsys.readouterr().out))
        if is_planned:
            assert run.counts.planned == 3
    assert found[0] == found[1]


class Cycled:
    """A user's step whose last line has momenta cycled: a tuple of betas, or one number, in the parameter groups."""

    def __init__(self, kind):
        torch.manual_seed(0)
        self.model = net()
        make, options = OPTIMIZERS[kind]
        self.optimizer = make(self.model.parameters(), **options)
        self.schedulers = [torch.optim.lr_scheduler.OneCycleLR(self.optimizer, max_lr=0.05, total_steps=9)]
        self.chained = torch.optim.lr_scheduler.ChainedScheduler(self.schedulers)

    def update(self, x):
        loss = self.model(x).square().mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()

    def one(self, x):
        loss = self.update(x)
        self.schedulers[0].step()
        return loss

    def chain(self, x):
        loss = self.update(x)
        self.chained.step()
        return loss

    def by_hand(self, x):
        loss = self.update(x)
        for group in self.optimizer.param_groups:
            group["weight_decay"] = group["weight_decay"] * 0.5
        return loss


OPTIMIZERS = {
    "adamw": (torch.optim.AdamW, {"weight_decay": 0.01}),
    "sgd": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
}


@together("kind", OPTIMIZERS)
@together("name", ["one", "chain", "by_hand"])
def test_what_the_tail_writes_into_parameter_groups_is_an_input_from_the_start(kind, name):
    found = []
    for is_planned in (False, True):
        trainer = Cycled(kind)
        step = getattr(trainer, name)
        run = planned(step, batch(), on_mismatch="error") if is_planned else step
        torch.manual_seed(1)
        results = [run(batch()) for _ in range(4)]
        found.append(plain([results, [*trainer.model.parameters()]]))
    assert found[0] == found[1]


def test_the_notes_name_the_first_line_behind_the_program():
    captured = capture_step(Trainer().counts, (batch(),))
    note = next(note for note in captured.steady.rewrites if "behind the program" in note)
    assert "self.n += 1" in note
    assert "test_host_code.py" in note


def test_a_verify_run_compares_what_the_tail_returns_and_leaves():
    def factory():
        trainer = Trainer()
        return trainer.averages, batch()

    assert_same_bits(factory)


def test_a_capture_with_host_code_is_put_on_other_objects():
    x, first, second = batch(), Trainer(), Trainer()
    captured = capture_step(first.counts, (x,))
    assert rebind_step(captured, second.counts, (x,)).host.tail.__self__ is second
    with pytest.raises(PlanMismatch):
        rebind_step(captured, lambda x: second.counts(x), (x,))  # noqa: PLW0108


def test_what_the_tail_raises_is_the_users_own_and_the_step_is_done():
    trainer = Trainer()

    def step(x):
        loss = trainer.update(x)
        trainer.n += 1
        if trainer.n == 2:
            raise StopIteration(loss.item())
        return loss.item()

    eager, x = Trainer(), batch()
    run = planned(step, x, on_mismatch="error")
    run(x)
    with pytest.raises(StopIteration):
        run(x)
    run(x)
    for _ in range(3):
        eager.update(x)
    for a, b in zip(trainer.model.parameters(), eager.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_result_keeps_that_it_was_attached_and_leads_nowhere():
    trainer = Trainer()
    kept = []

    def step(x):
        loss = trainer.update(x)
        kept.append(loss)
        return loss.detach()

    run = planned(step, batch())
    run(batch())
    assert kept[0].requires_grad
    assert not kept[0].is_leaf
    kept[0].mul_(2.0)
    with pytest.raises(StepMismatch, match="goes through one of its results"):
        kept[0].backward()


# -- what stays refused


class Refused(Trainer):
    """Each step has host code where it cannot run behind the program; its reason is the key of the table below."""

    def __init__(self):
        super().__init__()
        self.word = "a"
        self.hidden = types.MappingProxyType({"log": []})

    def between(self, x):
        out = self.model(x)
        self.log.append(len(x))
        return self.update(x) + out.sum()

    def hands_on_an_object(self, x):
        notes = types.SimpleNamespace(rows=len(x))
        loss = self.update(x)
        self.log.append(notes.rows)
        return loss.detach()

    def hands_on_a_list_of_its_own(self, x):
        log = self.hidden["log"]
        loss = self.update(x)
        self.n += 1
        log.append(loss.item())
        return loss.detach()

    def reads_what_it_writes(self, x):
        loss = self.update(x * len(self.word))
        self.word = self.word + "a"
        return loss.detach()

    def updates_behind(self, x):
        loss = self.model(x).square().mean()
        loss.backward()
        self.log.append(len(x))
        self.optimizer.step()
        return loss.detach()

    def trains_in_a_function_of_its_own(self, x):
        def once(part):
            return self.update(part)

        loss = once(x)
        self.log.append(len(x))
        return loss + once(x)

    def reads_what_a_function_of_its_own_writes(self, x):
        def note():
            self.lengthen()

        loss = self.update(x * len(self.word))
        note()
        return loss.detach()

    def lengthen(self):
        self.word = self.word + "a"


REASONS = {
    "between": "a backward pass comes after it",
    "hands_on_an_object": "variable notes holds a SimpleNamespace",
    "hands_on_a_list_of_its_own": "variable log is or holds a list or dict that is kept elsewhere",
    "reads_what_it_writes": "it writes self.word, which the step reads",
    "trains_in_a_function_of_its_own": "a backward pass comes after it",
    "reads_what_a_function_of_its_own_writes": "it writes self.word, which the step reads",
    "updates_behind": "an optimizer's update comes after it",
}


@together("name", REASONS)
def test_host_code_that_cannot_run_behind_is_refused_with_the_reason(name):
    trainer = Refused()
    with pytest.raises(CaptureError) as caught:
        capture_step(getattr(trainer, name), (batch(),))
    assert REASONS[name] in caught.value.next_step
    assert "move it behind the last tensor operation" in caught.value.next_step


def decorated(function):
    @functools.wraps(function)
    def inner(*args):
        return function(*args)

    return inner


def test_a_step_whose_statements_are_not_at_hand_is_refused():
    trainer = Trainer()
    from_text = {"trainer": trainer}
    exec("def step(x):\n    loss = trainer.update(x)\n    trainer.log.append(1)\n    return loss", from_text)
    for step, reason in (
        (decorated(trainer.appends_tensors), "a decorator is around the step"),
        (lambda x: trainer.log.append(trainer.update(x)), "a lambda"),
        (from_text["step"], "not there"),
    ):
        with pytest.raises(CaptureError) as caught:
            capture_step(step, (batch(),))
        assert reason in caught.value.next_step
