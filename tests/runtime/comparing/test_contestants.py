"""What is measured is a usual step, however many steps an optimizer takes to come to one."""

from __future__ import annotations

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from neaptide.frontends.programs.host_bytes import bytes_after
from neaptide.frontends.torch_step import capture_step
from neaptide.policy.prepared_step import prepare
from neaptide.runtime.comparing import contestants
from support.step_checks import as_variant


def rectified():
    """RAdam corrects its rate from the sixth step on: its usual step is another program than the first five."""
    model = nn.Linear(6, 3)
    optimizer = torch.optim.RAdam(model.parameters())

    def step(x):
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step, torch.randn(5, 6)


def test_the_usual_step_is_measured():
    step, batch = contestants.build(rectified, 0)
    prepared = prepare(step, (batch,), run_operations=False)
    variant = prepared.baseline_variant()
    planned = contestants.planned_contestant("baseline", rectified, 0, contestants.rebind(variant))
    eager = contestants.eager_contestant(rectified, 0)
    steps = {"eager": 0, "baseline": 0}

    def counted(contestant):
        def run():
            steps[contestant.name] += 1
            return contestant.run()

        return contestants.Contestant(contestant.name, run, contestant.persistent, contestant.is_steady)

    found = contestants.measure([counted(eager), counted(planned)], 0)
    assert planned.is_steady()
    assert steps["eager"] == steps["baseline"] > 5
    expected = prepared.as_written().peak_bytes
    assert found["baseline"].memory.measured_peak_bytes == expected


def averaged():
    """Averages weights after its update: the average is no state of the program."""
    torch.manual_seed(0)
    net = nn.Linear(64, 64)
    slow = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step(batch):
        loss = net(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        slow.update_parameters(net)
        return loss.detach()

    return step, torch.randn(4, 64)


def test_what_host_code_works_on_is_in_every_row():
    step, batch = averaged()
    captured = capture_step(step, (batch,))
    assert captured.host is not None
    behind = bytes_after(captured.steady)
    assert behind >= 4 * (64 * 64 + 64)
    variant = as_variant(captured)
    eager = contestants.eager_contestant(averaged, 0)
    planned = contestants.planned_contestant("baseline", averaged, 0, contestants.rebind(variant))
    for contestant in (eager, planned):
        contestant.first_steps()
    ours, theirs = planned.memory(), eager.memory()
    assert ours.persistent_bytes == theirs.persistent_bytes
    assert not ours.unregistered
    assert ours.measured_peak_bytes >= theirs.measured_peak_bytes - 4 * 64 * 64
