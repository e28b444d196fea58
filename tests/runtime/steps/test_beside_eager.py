"""Planned calls that are verified: what a difference does, what is left behind, and which bytes it takes."""

from __future__ import annotations

import gc
import logging
import re
import warnings
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional

from neaptide import compile_step
from neaptide.copy_engines.copy_engine import DEFAULT_SLOW_MEMORY
from neaptide.cost.cards import allocator_events
from neaptide.errors import NumericsError, NumericsWarning, UsageError
from neaptide.frontends.torch_step import capture_step
from neaptide.ir.graph import Graph
from neaptide.runtime.calls.state_copy import StateCopy
from neaptide.runtime.measuring.meter import storage_bytes
from neaptide.runtime.saving.digests import digest, result_digests, state_digests
from neaptide.runtime.saving.eager_bytes import EagerBytes
from neaptide.runtime.saving.scratch_file import SavedInFile, ScratchFile, storages_of
from neaptide.runtime.steps.planned_step import PlannedStep
from neaptide.settings import verified_calls
from support.step_checks import as_variant, captured_once

QUICK = {"time_limit_s": None, "work_limit": 100}


class Trainer:
    """A network with buffers, dropout and optimizer state; the step counts after its program."""

    def __init__(self, *, counts=False):
        torch.manual_seed(0)
        self.net = nn.Sequential(
            nn.Linear(16, 64),
            nn.BatchNorm1d(64),
            nn.GELU(),
            nn.Dropout(0.2),
            nn.Linear(64, 64),
            nn.Tanh(),
            nn.Linear(64, 4),
        )
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=0.01)
        self.losses = []
        self.calls = 0
        self.step = self.and_counts if counts else self.plain

    def plain(self, x):
        loss = functional.cross_entropy(self.net(x), x[:, 0].long() % 4)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss

    def and_counts(self, x):
        loss = functional.cross_entropy(self.net(x), x[:, 0].long() % 4)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.calls += 1
        self.losses.append(loss.item())
        return loss

    def state(self):
        entries = [e for kept in self.optimizer.state.values() for e in kept.values()]
        grads = [p.grad for p in self.net.parameters() if p.grad is not None]
        return [
            digest(t) for t in [*self.net.state_dict().values(), *entries, *grads]
        ], torch.get_rng_state().tolist()


def wrong(graph: Graph) -> Graph:
    """The program with another kernel for its activation."""
    for node in graph.nodes:
        if node.op == "aten.gelu.default":
            changed = replace(node, kwargs=(("approximate", "tanh"),))
            return replace(graph, nodes=tuple(changed if n is node else n for n in graph.nodes))
    raise AssertionError("the graph has no such operation")


def with_wrong_program(trainer, x, **options):
    """A planned step whose programs round the activation of the forward in another way."""
    variant = as_variant(captured_once((type(trainer), trainer.step.__name__), trainer.step, x))
    graphs = tuple(replace(planned, graph=wrong(planned.graph)) for planned in variant.graphs)
    return PlannedStep(
        trainer.step, lambda *_: replace(variant, graphs=graphs), on_mismatch="error", **options
    )


def right(trainer, x, **options):
    variant = as_variant(captured_once((type(trainer), trainer.step.__name__), trainer.step, x))
    return PlannedStep(trainer.step, lambda *_: variant, on_mismatch="error", **options)


@pytest.fixture
def x():
    torch.manual_seed(5)
    return torch.randn(32, 16)


def after(step, trainer, x, calls=3):
    torch.manual_seed(1)
    results = [step(x).item() for _ in range(calls)]
    return results, trainer.state(), trainer.calls, trainer.losses


@pytest.mark.parametrize("counts", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_verified_calls_leave_what_eager_leaves(x, counts):
    eager, ours = Trainer(counts=counts), Trainer(counts=counts)
    run = right(ours, x, verify="first")
    assert after(run, ours, x) == after(eager.step, eager, x)
    assert run.counts.verified.calls == 2  # the first step and the usual one
    assert run.counts.verified.differed == 0
    assert "2 verified beside eager: same bits, in" in run.counts.describe()


def test_a_difference_is_a_warning_of_one_line_and_the_call_is_eagers(x):
    eager, ours = Trainer(counts=True), Trainer(counts=True)
    run = with_wrong_program(ours, x, verify="first")
    with pytest.warns(
        NumericsWarning, match=r"the first operation that differs is aten\.gelu\.default at .*test_beside"
    ) as told:
        found = after(run, ours, x, 1)
    assert found == after(eager.step, eager, x, 1)
    assert "\n" not in str(told[0].message)
    assert "result" in str(told[0].message)
    assert run.counts.verified.differed == 1


def test_a_strict_difference_is_an_error_and_changes_nothing(x):
    eager, ours = Trainer(counts=True), Trainer(counts=True)
    run = with_wrong_program(ours, x, verify="first", strict=True)
    torch.manual_seed(1)
    with pytest.raises(NumericsError, match="other bits than eager") as caught:
        run(x)
    assert re.match(r"aten\.gelu\.default at .*test_beside_eager.py:\d+", caught.value.where)
    torch.manual_seed(1)
    assert ours.state() == eager.state()
    assert (ours.calls, ours.losses) == (0, [])


def test_a_step_that_eager_does_in_another_way_each_time_is_left_alone(x, caplog):
    noise = iter(range(1, 100))
    trainer = Trainer()

    run = right(trainer, x, verify="first", strict=True)
    run._step = lambda batch: trainer.plain(batch + 0.01 * next(noise))
    with caplog.at_level(logging.WARNING):
        run(x)
    assert "eager itself gives other bits" in caplog.text


def test_what_eager_raises_is_raised_and_the_model_is_as_before(x):
    trainer = Trainer()
    run = right(trainer, x, verify="first")
    before = trainer.state()

    def step(batch):
        trainer.plain(batch)
        raise ValueError("no room for a log")

    run._step = step
    torch.set_rng_state(torch.tensor(before[1], dtype=torch.uint8))
    with pytest.raises(ValueError, match="no room for a log"):
        run(x)
    assert trainer.state() == before
    run._step = trainer.plain
    run(x)
    assert run.counts.verified.calls == 1  # the call that died was none


def test_an_interrupt_behind_eager_leaves_no_step_done(x, monkeypatch):
    trainer = Trainer()
    run = right(trainer, x, verify="first")
    before = trainer.state()

    def interrupted(_tensor):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("neaptide.runtime.saving.digests.digest", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(x)
    assert trainer.state() == before
    put_back = StateCopy.put_back

    def interrupted_once(_copy):
        monkeypatch.setattr(StateCopy, "put_back", put_back)
        raise KeyboardInterrupt

    monkeypatch.setattr(StateCopy, "put_back", interrupted_once)
    with pytest.raises(KeyboardInterrupt):
        run(x)
    assert trainer.state() == before
    run(x)
    assert run.counts.verified.calls == 1


def test_state_that_is_written_once_and_tensors_that_are_left_are_eagers(x):
    class Keeps(Trainer):
        def plain(self, batch):
            if self.kept.get("mode") is None:
                self.kept["mode"] = "built"
            out = self.net(batch)
            self.kept["features"] = out
            self.kept["average"] = 0.9 * self.kept["average"] + out.detach().mean(0)
            loss = out.square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            return loss

        def __init__(self):
            self.kept = {"mode": None, "features": None, "average": torch.zeros(4)}
            super().__init__()

    eager, ours = Keeps(), Keeps()
    run = right(ours, x, verify="every 1", strict=True)
    assert after(run, ours, x) == after(eager.step, eager, x)
    assert result_digests(ours.kept) == result_digests(eager.kept)
    assert ours.kept["mode"] == "built"
    assert run.counts.verified.calls == 3


# -- bytes


def deep():
    torch.manual_seed(0)
    layers = [m for _ in range(4) for m in (nn.Linear(32, 32), nn.GELU(), nn.LayerNorm(32))]
    net = nn.Sequential(*layers)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

    def step(batch):
        loss = net(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return net, optimizer, step, torch.randn(512, 32)


def wide():
    """Gradients are most of its bytes: a plan updates each weight as soon as it can, and eager has all of them at once."""
    torch.manual_seed(0)
    net = nn.Sequential(*(m for _ in range(4) for m in (nn.Linear(96, 96), nn.Tanh())))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

    def step(batch):
        loss = net(batch).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step, torch.randn(4, 96)


def peak(run, persistent):
    gc.collect()
    return allocator_events.record(run, persistent=persistent()).peak_bytes(storage_bytes(persistent()))


def test_a_verified_call_takes_no_byte_beyond_the_budget():
    net, optimizer, step, batch = deep()
    fast = compile_step(step, budget="85%", verify="every 1", strict=True, **QUICK)
    fast(batch)

    def persistent():
        kept = [e for entries in optimizer.state.values() for e in entries.values()]
        return [*net.parameters(), *kept, *(p.grad for p in net.parameters()), batch]

    eager = peak(lambda: step(batch), persistent)
    allowed = fast.plan.program("steady").budget_bytes
    found = peak(lambda: fast(batch), persistent)
    assert found <= allowed < eager
    assert fast.counts.verified.calls == 2
    state = storage_bytes(persistent())
    assert fast.counts.verified.file_bytes > state, "what autograd saved waited there too"


def test_a_budget_that_eager_cannot_keep_is_told_once(caplog):
    step, batch = wide()
    with caplog.at_level(logging.WARNING):
        fast = compile_step(step, budget="min", verify="every 1", **QUICK)
        for _ in range(3):
            fast(batch)
    told = [r.getMessage() for r in caplog.records if "not verified" in r.getMessage()]
    assert len(told) == 1
    assert re.search(r"eager may take .* are allowed", told[0])
    assert "\n" not in told[0]
    assert fast.counts.verified.calls == 0
    assert "not verified: eager may take" in fast.counts.describe()


@pytest.mark.parametrize("share", [0.75, *(pytest.param(s, marks=pytest.mark.slow) for s in (0.95, 0.6))])
def test_predicted_bytes_are_never_less_than_what_eager_takes(share):
    net, optimizer, step, batch = deep()
    step(batch)
    captured = capture_step(step, (batch,))

    def persistent():
        optimizer.zero_grad()  # as the program does in front of everything
        kept = [e for entries in optimizer.state.values() for e in entries.values()]
        return [*net.parameters(), *kept, batch]

    limit = int(share * peak(lambda: step(batch), persistent))
    in_file = EagerBytes(captured.steady, {}).bytes_in_file(limit)
    with ScratchFile(DEFAULT_SLOW_MEMORY) as file:

        def run():
            with SavedInFile(file, in_file, storages_of(persistent())):
                step(batch)

        assert peak(run, persistent) <= EagerBytes(captured.steady, {}).peak(in_file) <= limit
        assert file.nbytes > 0


def double_backward(x, weight):
    out = (x @ weight).tanh() * torch.sin(x)
    (gradient,) = torch.autograd.grad(out.sum(), [weight], create_graph=True)
    return (gradient.square().sum() + out[:, ::2].t().square().sum()).sqrt()


@pytest.mark.parametrize(
    "make", [double_backward, lambda x, w: functional.layer_norm((x @ w).T[3:], (64,)).prod(1).sum()]
)
def test_what_waits_in_a_file_gives_the_same_gradients(make):
    torch.manual_seed(0)
    x, weight = torch.randn(64, 64), torch.randn(64, 64, requires_grad=True)
    (expected,) = torch.autograd.grad(make(x, weight), [weight])
    with ScratchFile(DEFAULT_SLOW_MEMORY) as file, SavedInFile(file, 1 << 40, storages_of([weight])):
        (found,) = torch.autograd.grad(make(x, weight), [weight])
        assert file.nbytes > 0
    assert digest(found) == digest(expected)


# -- digests and the setting


def test_a_digest_is_of_the_bits_in_the_order_of_indices():
    torch.manual_seed(0)
    plain = torch.randn(70, 70, 80)
    strided = plain.permute(2, 0, 1).contiguous().permute(1, 2, 0)
    assert digest(strided) == digest(plain)
    assert digest(plain[1:, ::3]) == digest(plain[1:, ::3].clone())
    assert digest(torch.tensor([0.0])) != digest(torch.tensor([-0.0]))
    assert digest(torch.zeros(4)) != digest(torch.full((4,), 0.1))
    assert digest(plain.bfloat16()) != digest(plain.half())
    assert digest(torch.zeros(2, 3)) != digest(torch.zeros(3, 2))
    assert digest(torch.randn(3, dtype=torch.complex64).conj()) is not None
    assert digest(torch.zeros(0)) == digest(torch.zeros(0))


def test_the_setting_is_read_from_the_argument_and_else_from_the_environment(monkeypatch):
    monkeypatch.delenv("NEAPTIDE_VERIFY", raising=False)
    assert verified_calls(None) == "first"
    assert verified_calls(True) == "first"
    assert verified_calls("every 20") == "every 20"
    monkeypatch.setenv("NEAPTIDE_VERIFY", "never")
    assert verified_calls(None) == "never"
    assert verified_calls("first") == "first"
    for nonsense in ("every 0", "sometimes", "every", 3):
        with pytest.raises(UsageError, match="neither whether nor when"):
            verified_calls(nonsense)


def test_every_so_many_calls_and_never(x):
    trainer = Trainer()
    run = right(trainer, x, verify="every 3")
    for _ in range(7):
        run(x)
    assert run.counts.verified.calls == 4  # calls 0 and 1 as the first of each program, 3 and 6
    never = right(Trainer(), x)
    never(x)
    assert never.counts.verified.calls == 0
    assert "verified" not in never.counts.describe()


def test_digests_know_gradients_state_and_what_autograd_sees(x):
    trainer = Trainer()
    trainer.step(x)
    state = capture_step(trainer.step, (x,)).state
    names = set(state_digests(state))
    assert any(name.endswith(".weight.grad") for name in names)
    assert any(name.endswith(".exp_avg") for name in names)
    leaf = torch.zeros(2, requires_grad=True)
    assert result_digests([leaf]) != result_digests([leaf.detach()])
    assert result_digests([leaf]) != result_digests([leaf * 1.0])


def test_no_warning_where_nothing_differs(x):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        right(Trainer(), x, verify="first")(x)
