"""What host code after a program works on is part of its bytes: a budget is one for all of them."""

from __future__ import annotations

import copy

import torch
from torch import nn

from neaptide.ask import Ask
from neaptide.budget import Budget
from neaptide.frontends.programs.host_bytes import bytes_after
from neaptide.frontends.torch_step import capture_step
from neaptide.policy.prepared_step import PreparedStep
from neaptide.runtime.comparing import contestants
from support.step_checks import assert_like_eager, planned

TEACHER_BYTES = 5 * 4 * (64 * 64 + 64) + 4 * 4 * 64 + 8


def beside_a_teacher(log):
    """Logs after its update how far it is from another model, which no operation of its program takes."""
    torch.manual_seed(0)
    net = nn.Sequential(*(layer for _ in range(5) for layer in (nn.Linear(64, 64), nn.Tanh())))
    teacher = nn.Sequential(copy.deepcopy(net), nn.BatchNorm1d(64))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

    def step(batch, epoch=0):
        optimizer.zero_grad()
        loss = net(batch).square().mean()
        loss.backward()
        optimizer.step()
        pairs = zip(net.parameters(), teacher[0].parameters(), strict=True)
        log.append((epoch, sum(float((a - b).detach().norm()) for a, b in pairs)))
        return loss.detach()

    return step, torch.randn(512, 64)


def watched():
    return beside_a_teacher([])


def test_each_program_has_them_as_an_input_that_no_operation_takes():
    step, batch = watched()
    captured = capture_step(step, (batch,))
    for program in captured.programs:
        slots = zip(program.graph.inputs, program.inputs, strict=True)
        behind = [value for value, slot in slots if slot.key[0] == "behind"]
        assert behind
        assert bytes_after(program) == TEACHER_BYTES
        assert all(not set(behind) & set(node.inputs) for node in program.graph.nodes)


def test_a_share_is_of_a_peak_that_has_them():
    step, batch = watched()
    prepared = PreparedStep(capture_step(step, (batch,)), device="rtx3090")
    written = prepared.as_written()
    ours = contestants.planned_contestant(
        "baseline", watched, 0, contestants.rebind(prepared.baseline_variant())
    )
    ours.first_steps()
    assert ours.memory().measured_peak_bytes == written.peak_bytes
    half = Ask(Budget("50%"))
    assert prepared.allowed(half, 0, None) == written.peak_with_workspace_bytes // 2


def test_a_log_that_grows_is_no_other_program():
    log = []
    step, batch = beside_a_teacher(log)
    fast = planned(step, batch, further=(0,))
    for epoch in range(4):
        fast(batch, epoch)
    assert fast.counts.replans == 0
    assert [epoch for epoch, _ in log] == [0, 1, 2, 3]


def test_meters_are_some_of_them_and_a_list_of_losses_is_not():
    net = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    meters = {"loss": torch.zeros(()), "seen": torch.zeros((), dtype=torch.long)}
    losses = [torch.zeros(()) for _ in range(3)]

    def step(batch):
        optimizer.zero_grad()
        loss = net(batch).square().mean()
        loss.backward()
        optimizer.step()
        value = loss.item()
        losses.append(torch.tensor(value))
        meters["loss"] += value
        meters["seen"] += len(losses)

    assert bytes_after(capture_step(step, (torch.randn(5, 4),)).steady) == 4 + 8


def test_what_a_step_leaves_at_each_call_is_none_of_them():
    class Routed(nn.Module):
        def __init__(self):
            super().__init__()
            self.experts, self.extra_loss, self.kept = nn.Linear(4, 64), 0.0, {}

        def forward(self, batch):
            self.kept["out"] = out = self.experts(batch)
            self.extra_loss = out.softmax(-1).square().mean()
            return out

    def make():
        torch.manual_seed(0)
        net, seen = Routed(), []
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

        def step(batch):
            loss = net(batch).square().mean() + net.extra_loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen.append(loss.item())

        return (step,)

    assert assert_like_eager(make).counts.replans == 0
    assert bytes_after(capture_step(make()[0], (torch.randn(5, 4),)).steady) == 0
