"""Plans of fused kernels: as close to eager as their dtype, in a file, and what is refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import neaptide
from frontends import steps
from neaptide import zoo
from neaptide.errors import LoweringError, UsageError
from neaptide.kernels import fused as kernels
from neaptide.ops.fused import FUSED_OP
from neaptide.planner.prices import Prices
from neaptide.policy.fused_groups import with_faster_kernels
from neaptide.policy.prepared_step import prepare
from support import catalogue
from support.steps import QUICK


def gated():
    """One weight, an activation of three operations, an update of two."""
    torch.manual_seed(0)
    layer = nn.Linear(16, 16, bias=False)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, weight_decay=0.01)

    def activated(batch):
        wide = layer(batch)
        return wide * torch.sigmoid(wide) * 2.0

    return steps.simple(activated, optimizer), torch.randn(64, 16)


def test_a_step_of_fused_kernels_is_close_to_eager_and_its_plan_fits_a_file(tmp_path, caplog):
    (step, batch), (other, same) = gated(), gated()
    planned = neaptide.compile_step(step, budget="100%", lowering="inductor", verify="first", **QUICK)
    for _ in range(4):
        torch.testing.assert_close(planned(batch), other(same), rtol=1e-5, atol=1e-6)
    assert 'not verified against eager: lowering="inductor" takes sums' in caplog.text
    step, batch = gated()
    plan = neaptide.plan(step, batch, budget="100%", lowering="inductor", **QUICK)
    assert [rewrite.rule for rewrite in plan.programs[0].rewrites].count("fusion") == 1
    plan.save(tmp_path / "plan.json")
    (step, batch), (other, same) = gated(), gated()
    again = neaptide.apply(tmp_path / "plan.json", step)
    for _ in range(3):
        torch.testing.assert_close(again(batch), other(same), rtol=1e-5, atol=1e-6)


@pytest.fixture
def nothing_compiles(monkeypatch):
    monkeypatch.setattr(kernels, "why_no_compiler", lambda _device: "there is no C++ compiler")
    kernels.fused_kernel.cache_clear()


@pytest.mark.usefixtures("nothing_compiles")
def test_without_a_compiler_one_sentence_says_so():
    with pytest.raises(LoweringError, match="cannot be compiled") as told:
        kernels.fused_kernel('graph "body" {\n  output()\n}\n')
    assert 'lowering="aten"' in str(told.value)


def test_a_folder_of_inductor_that_takes_no_files_is_told(monkeypatch):
    def refuse(_body):
        raise PermissionError(13, "Permission denied", "/cache")

    monkeypatch.setattr(kernels, "why_no_compiler", lambda _device: None)
    monkeypatch.setattr(kernels, "_compiled", refuse)
    with pytest.raises(LoweringError, match="Permission denied: '/cache'"):
        kernels.fused_kernel('graph "denied" {\n  output()\n}\n')


def test_an_unknown_lowering_is_refused_before_anything_is_captured():
    with pytest.raises(UsageError, match="lowering"):
        neaptide.compile_step(gated()[0], budget="90%", lowering="triton")


@pytest.mark.parametrize(
    "others",
    [{"atomic": True}, {"arena": True}, {"eviction": "dtr"}, {"dynamic": {"x": {0: (1, 8)}}}],
)
def test_what_excludes_fused_kernels_is_refused(others):
    with pytest.raises(UsageError, match="exclude each other"):
        neaptide.compile_step(gated()[0], budget="90%", lowering="inductor", **others)


@pytest.mark.parametrize(("factor", "is_fused"), [(0.5, True), (2.0, False)])
def test_groups_that_are_faster_apart_stay_apart(factor, is_fused):
    prepared = catalogue.prepared(steps.adamw, run_operations=False)
    before = prepared.rewritten(0, ())
    told = []

    def prices(graph):
        seconds = [0.0 if node.op != FUSED_OP else factor * body_count(node) for node in graph.nodes]
        apart = [1.0] * len(graph.nodes)
        return Prices(tuple(apart if graph is before.graph else seconds), {}, {})

    found = with_faster_kernels(before, prepared.registry, prices, told.append)
    assert any(node.op == FUSED_OP for node in found.graph.nodes) is is_fused
    assert any("faster apart" in line for line in told) is not is_fused


def body_count(node):
    """Operations of a body that compute."""
    return str(node.args[0]).count(" = aten.") - str(node.args[0]).count("aten.view.")


@pytest.mark.slow
@pytest.mark.parametrize("model", ["gpt2", "vit", "llama", "unet2d", "resnet50"])
def test_models_of_fused_kernels_train_like_eager(model):
    def made():
        torch.manual_seed(0)
        return zoo.factory(f"{model}@tiny")()

    (step, batch), (other, same) = made(), made()
    planned = neaptide.compile_step(step, budget="90%", lowering="inductor", **QUICK)
    for _ in range(3):
        torch.testing.assert_close(planned(batch), other(same), rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_a_predicted_peak_of_fused_kernels_is_what_the_allocator_sees():
    from neaptide.ask import Ask
    from neaptide.budget import Budget
    from neaptide.runtime.comparing import contestants

    step, batch = contestants.build(gated, 0)
    prepared = prepare(step, (batch,))
    plan = prepared.plan(Ask(Budget("100%"), rewrites=("fusion",)))
    runner = contestants.planned_contestant("fused", gated, 0, contestants.rebind(plan.variant))
    measured = contestants.measure([runner], 0)["fused"].memory
    predicted = plan.plan.program("steady").predictions.peak_with_workspace_bytes
    assert measured.measured_allocator_peak_bytes == pytest.approx(predicted, rel=0.02)
