"""Gradient scalers: updates that eager leaves out are computed and not taken."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from neaptide.analysis.profile_bytes import memory_profile
from neaptide.errors import CaptureError
from neaptide.frontends.torch_step import capture_step
from neaptide.ir.schedule import Schedule
from programs.program import descending
from support.step_checks import assert_like_eager, planned
from support.together import together


class Counting(torch.optim.Optimizer):
    """Counts in Python, and replaces its tensors instead of writing them."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1, "steps": 0})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            group["steps"] += 1
            for p in group["params"]:
                kept = self.state[p]
                kept["count"] = kept.get("count", 0) + 1
                kept["mean"] = kept.get("mean", torch.zeros_like(p)).lerp(p.grad, 0.1)
                p.add_(kept["mean"], alpha=-group["lr"] / (1 - 0.9 ** kept["count"]))


def scaled(make, *, clips=False, updates=True, width=3):
    torch.manual_seed(0)
    model = nn.Linear(4, width)
    optimizer = make(model.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=3)

    def step(x):
        loss = model(x).square().mean()
        scaler.scale(loss).backward()
        if clips:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        if updates:
            scaler.update()
        optimizer.zero_grad()
        return loss.detach()

    return model, optimizer, scaler, step


OPTIMIZERS = {
    "momentum that begins with the first gradient": lambda p: torch.optim.SGD(
        p, lr=0.1, momentum=0.9, dampening=0.5
    ),
    "step counts in tensors": torch.optim.AdamW,
    "skipping within the kernel": lambda p: torch.optim.AdamW(p, fused=True),
    "all at once": lambda p: torch.optim.NAdam(p, foreach=True),
    "counts in Python": Counting,
}


SIZES = (math.inf, 1.0, math.nan, 1.0, 2.0, 0.5, -math.inf, 1.0)


def of_size(call):
    return torch.randn(5, 4) * SIZES[call]


def at_one(step, batch, **options):
    """Planned for finite numbers."""
    return planned(step, torch.ones_like(batch), **options)


@together("clips", [False, True], quick=(1,))
@together("name", OPTIMIZERS, quick=(0, 2, 4))
def test_updates_that_eager_skips_are_not_taken(name, clips):
    run = assert_like_eager(
        lambda: scaled(OPTIMIZERS[name], clips=clips)[::-1], len(SIZES), batches=of_size, run_by=at_one
    )
    assert run.counts.replans == 0, run.counts.describe()


def test_a_scaler_is_left_as_it_was_by_a_capture():
    _, _, scaler, step = scaled(torch.optim.AdamW)
    capture_step(step, (torch.randn(5, 4),))
    assert scaler.get_scale() == 2.0**10
    assert "_maybe_opt_step" not in vars(scaler)
    step(torch.randn(5, 4))


def test_a_scale_that_is_loaded_is_seen():
    eager, ours = (scaled(torch.optim.AdamW) for _ in range(2))
    batch = torch.randn(5, 4)
    run = planned(ours[3], batch)
    for _ in range(2):
        for side in (eager, ours):
            side[2].load_state_dict({**side[2].state_dict(), "scale": 2.0**5, "_growth_tracker": 1})
        assert torch.equal(run(batch), eager[3](batch))
        assert ours[2].state_dict() == eager[2].state_dict()
    assert run.counts.replans == 0


def test_old_tensors_are_kept_one_at_a_time():
    """Selecting costs a copy and a selection of the largest tensor, not of the whole model and its state."""
    plain, guarded = (
        capture_step(step, (torch.randn(5, 4),)).steady.graph
        for step in (unscaled_step(), scaled(torch.optim.AdamW, width=3000)[3])
    )
    largest = 4 * 3000 * 4
    peaks = [memory_profile(g, Schedule.program_order(g)).peak_bytes for g in (plain, guarded)]
    assert peaks[1] <= peaks[0] + 2 * largest + 1000


def unscaled_step():
    model, optimizer, _, _ = scaled(torch.optim.AdamW, width=3000)

    return descending(optimizer, lambda x: model(x).square().mean())


def test_a_scaler_that_is_not_updated_in_the_step_is_refused():
    *_, step = scaled(torch.optim.AdamW, updates=False)
    with pytest.raises(CaptureError, match="between unscale_ or step and update when the step is over"):
        capture_step(step, (torch.randn(5, 4),))


def test_a_scaler_with_rules_of_its_own_is_refused():
    class Never(torch.amp.GradScaler):
        def step(self, optimizer):
            return None

    model = nn.Linear(4, 3)
    scaler = Never("cpu")

    def step(x):
        return scaler.scale(model(x).sum())

    with pytest.raises(CaptureError, match="may skip updates by rules of its own"):
        capture_step(step, (torch.randn(5, 4),))


class Averaging(torch.optim.SGD):
    """Keeps a mean of the weights beside them."""

    def __init__(self, parameters):
        super().__init__(parameters, lr=0.1, momentum=0.9)
        self.means = [p.detach().clone() for group in self.param_groups for p in group["params"]]

    def step(self, closure=None):
        super().step()
        for mean, p in zip(self.means, self.param_groups[0]["params"], strict=True):
            mean.lerp_(p.detach(), 0.1)


class Outer(torch.optim.Optimizer):
    """Hands on to an optimizer that shares its groups."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1})
        self.base = Counting([p for group in self.param_groups for p in group["params"]])
        self.base.param_groups = self.param_groups
        for group in self.param_groups:
            group["steps"] = 0
        self.state = self.base.state

    def step(self, closure=None):
        return self.base.step()


class ByTypeOnly(torch.optim.Optimizer):
    """Keeps nothing itself, as the wrappers of trainers do."""

    def __init__(self, parameters):
        self.inner = torch.optim.AdamW(parameters)

    def __getattr__(self, name):
        return getattr(self.inner, name)

    @property
    def state(self):
        return self.inner.state

    @property
    def param_groups(self):
        return self.inner.param_groups

    def step(self, closure=None):
        return self.inner.step(closure)

    def zero_grad(self, set_to_none=True):
        self.inner.zero_grad(set_to_none)


@together("kind", [Averaging, Outer, ByTypeOnly], quick=(1,))
def test_all_that_a_wrapping_optimizer_writes_is_skipped(kind):
    run = assert_like_eager(lambda: scaled(kind)[::-1], batches=of_size, run_by=at_one)
    assert run.counts.replans == 0, run.counts.describe()


def test_a_rate_that_the_step_sets_beside_a_scaler_is_refused():
    _, optimizer, _, inner = scaled(torch.optim.AdamW)

    def step(x):
        optimizer.param_groups[0]["lr"] *= 0.5
        return inner(x)

    with pytest.raises(CaptureError, match=r"writes optimizer\.0\.lr\.None outside of optimizer\.step"):
        capture_step(step, (torch.randn(5, 4),))
