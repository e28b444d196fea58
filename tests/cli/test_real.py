"""The whole way on a small model, nothing faked."""

import json

import pytest

from neaptide.plans import Plan
from support.step_checks import needs_varying_dims

pytest.importorskip("torch")

USERS_FILE = """
import torch

def factory():
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(6)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(batch):
        loss = model(batch["x"]).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step, {"x": torch.randn(128, 64)}
"""


def test_profile_plan_explain_and_run(call, tmp_path):
    (tmp_path / "train.py").write_text(USERS_FILE)
    profile = json.loads(call("profile", "train.py:factory", "--json").out)
    assert profile["predicted_peak_bytes"] > profile["persistent_bytes"] > 0
    assert any("train.py:" in row["made_at"] for row in profile["live_at_peak"])

    planned = call("plan", "train.py:factory", "--peak", "85%", "--work-limit", "300", "-o", "plan.json")
    assert planned.code == 0
    assert "; held with " in planned.out
    program = Plan.load(tmp_path / "plan.json").program("steady")
    assert program.predictions.peak_with_workspace_bytes <= program.budget_bytes

    assert "neaptide run train.py:factory --plan plan.json" in call("explain", "plan.json").out

    ran = call("run", "train.py:factory", "--plan", "plan.json", "--verify", "--json")
    report = json.loads(ran.out)
    assert ran.code == 0
    assert report["bitwise_equal"] is True
    assert report["measured_peak_bytes"] == report["predicted_peak_bytes"] == program.predictions.peak_bytes

    other = call("run", "zoo:mlp@tiny", "--plan", "plan.json")
    assert other.code == 4
    assert "does not fit this step" in other.err


def test_compare_for_another_device_runs_nothing(call):
    ending = call("compare", "zoo:mlp@tiny", "--peak", "95%", "--device", "rtx4090")
    assert ending.code == 0
    assert "predicted, nothing was run" in ending.out


def test_a_budget_below_the_bound_is_refused_with_the_smallest_peak(call, tmp_path):
    ending = call("plan", "zoo:mlp@tiny", "--peak", "10%", "--work-limit", "200", "-o", "plan.json", "--json")
    assert ending.code == 3
    error = json.loads(ending.out)["error"]
    best = Plan.load(tmp_path / "plan.json").program("steady")
    assert error["smallest_peak_bytes"] == best.predictions.peak_with_workspace_bytes
    assert error["smallest_peak_bytes"] >= error["lower_bound_bytes"] > best.budget_bytes


def test_a_step_that_cannot_be_captured_names_the_line(call, tmp_path):
    branch = "if loss > 0:\n            loss = 2 * loss\n        loss.backward()"
    (tmp_path / "train.py").write_text(USERS_FILE.replace("loss.backward()", branch))
    ending = call("profile", "train.py:factory")
    assert ending.code == 4
    assert f"where: {tmp_path / 'train.py'}:11" in ending.err
    assert "torch.where" in ending.err


@needs_varying_dims
def test_a_profile_over_a_range_of_shapes(call):
    found = json.loads(call("profile", "zoo:mlp@tiny", "--dynamic", "batch:0=2..64", "--json").out)
    assert found["ranges"]["dims"] == ["batch_0 in 2..64"]
    small, large = found["ranges"]["peaks"]
    assert (small["sizes"], large["sizes"]) == ({"batch_0": 2}, {"batch_0": 64})
    assert small["predicted_peak_bytes"] < large["predicted_peak_bytes"]
    assert "cannot be read" in call("profile", "zoo:mlp@tiny", "--dynamic", "batch:0=9..2").err


@pytest.mark.slow
@needs_varying_dims
def test_a_comparison_at_some_shapes(call):
    asked = ("compare", "zoo:mlp@tiny", "--dynamic", "batch:0=2..64", "--peak", "100%", "--repeats", "1")
    found = json.loads(call(*asked, "--work-limit", "50", "--at", "3", "--at", "64", "--json").out)
    assert [shape["sizes"] for shape in found["shapes"]] == [{"batch_0": 3}, {"batch_0": 64}]
    for shape in found["shapes"]:
        eager, plan, padded = shape["rows"]
        assert (eager["name"], padded["name"]) == ("eager", "padded")
        assert plan["bitwise_equal"]
        for row in (plan, padded):
            assert row["measured_peak_bytes"] == row["predicted_peak_bytes"]
    assert "65" in call(*asked, "--at", "65").err
    assert "1 dims vary" in call(*asked, "--at", "3x4").err
    assert "exclude each other" in call(*asked, "--also", "early_updates").err
    assert "no dim varies" in call("compare", "zoo:mlp@tiny", "--at", "3").err


@pytest.mark.slow
@needs_varying_dims
def test_the_largest_shapes_that_fit(call, tmp_path):
    picture = tmp_path / "peaks.svg"
    asked = ("profile", "zoo:mlp@tiny", "--dynamic", "batch:0=2..", "--fit", "1MiB")
    found = json.loads(call(*asked, "--picture", str(picture), "--json").out)
    (row,) = found["ranges"]["fit"]["rows"]
    assert row["dim"] == "batch_0"
    assert 2 < row["in_program_order"] <= row["with_points"] < row["end"]
    assert "no dim varies" in call("profile", "zoo:mlp@tiny", "--fit", "1MiB").err
    (curve,) = found["ranges"]["fit"]["curves"]["curves"]
    for size, nbytes in zip(curve["sizes"], curve["baseline_peak_bytes"], strict=True):
        assert (nbytes <= 1 << 20) == (size <= row["in_program_order"])
    assert "limit 1.00 MiB" in picture.read_text()
    assert "no dim varies" in call("profile", "zoo:mlp@tiny", "--picture", str(picture)).err


@pytest.mark.slow
def test_plans_are_tried_where_that_is_asked_for(call, tmp_path):
    asked = (
        "plan",
        "zoo:mlp@tiny",
        "--latency",
        "+900%",
        "--trials",
        "2",
        "--work-limit",
        "60",
        "-o",
        "plan.json",
    )
    ending = call(*asked)
    assert ending.code == 0
    assert "Taken: the least peak of those that measured within 10.000 of that time." in ending.out
    assert Plan.load(tmp_path / "plan.json").programs[0].trials is not None
    elsewhere = call(*asked, "--device", "rtx3090")
    assert elsewhere.code == 2
    assert "--trials and --device exclude each other" in elsewhere.err
