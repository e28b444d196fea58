"""A plan for all shapes is compared at shapes of its range: what was predicted there is measured, bits are eager's."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import neaptide
from neaptide.errors import UsageError
from neaptide.frontends.dims.dynamic_dims import find_dims
from neaptide.runtime.comparing.contestants import FactoryOfShape
from support.step_checks import needs_varying_dims
from support.together import together

WIDTH = 8


def factory():
    layers = (nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
    model = nn.Sequential(*layers, *(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(3)))

    def step(batch):
        loss = model(batch["x"]).sub(batch["y"]).square().sum()
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.sub_(parameter.grad, alpha=0.01)
                parameter.grad = None
        return loss.detach()

    return step, {"x": torch.randn(5, WIDTH), "y": torch.randn(5, WIDTH)}


@needs_varying_dims
def test_a_shape_that_the_program_does_not_hold_for_is_told():
    asked = {"budget": "100%", "dynamic": {"batch": {0: (2, 24)}}, "repeats": 0}
    with pytest.raises(UsageError, match="does not hold for batch_0 = 25"):
        neaptide.compare_shapes(factory, at=[(25,)], **asked)
    with pytest.raises(UsageError, match="has 2 sizes"):
        neaptide.compare_shapes(factory, at=[(3, 3)], **asked)


@together("rows", [2, 5, 12])
def test_a_batch_of_another_shape_has_the_entries_of_the_first_one_again_and_its_layout(rows):
    def wide():
        images = torch.randn(5, 3, 4, 4).to(memory_format=torch.channels_last)
        return factory()[0], {"x": images, "y": torch.randn(5, 2, requires_grad=True), "n": 7}

    step, batch = wide()
    dims = find_dims(step, (batch,), {}, {"batch": {0: (2, 24)}})
    torch.manual_seed(0)
    _, made = FactoryOfShape.of(wide, dims, {"batch_0": rows})()
    torch.manual_seed(0)
    _, own = wide()
    for key in ("x", "y"):
        assert len(made[key]) == rows
        for row in range(rows):
            assert torch.equal(made[key][row], own[key][row % 5])
    assert made["x"].is_contiguous(memory_format=torch.channels_last)
    assert made["y"].requires_grad
    assert made["y"].is_leaf
    assert made["n"] == 7


@pytest.mark.slow
@needs_varying_dims
@pytest.mark.parametrize("strategy", ["default", "by_shape"])
def test_predictions_at_each_shape_are_measured(strategy):
    found = neaptide.compare_shapes(
        factory,
        budget="85%",
        dynamic={"batch": {0: (2, 24)}},
        repeats=0,
        strategy=strategy,
        time_limit_s=None,
        work_limit=100,
    )
    assert [shape.sizes for shape in found.shapes] == [{"batch_0": size} for size in (2, 13, 24)]
    padded_peaks = set()
    for shape in found.shapes:
        eager, plan, padded = shape.rows
        assert plan.bitwise_equal
        assert plan.measured_peak_bytes == plan.predicted_peak_bytes <= found.limit_bytes
        assert padded.measured_peak_bytes == padded.predicted_peak_bytes
        padded_peaks.add(padded.measured_peak_bytes)
        assert plan.predicted_step_seconds > 0
    assert len(padded_peaks) == 1
    assert eager.measured_peak_bytes > found.limit_bytes
    times = [shape.rows[1].predicted_step_seconds for shape in found.shapes]
    assert times == sorted(times)
