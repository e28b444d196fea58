"""The public functions, on small real steps: plan, explain, save, load, apply, compile_step, profile, compare, run."""

from __future__ import annotations

import json
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch import nn

import neaptide
from frontends import steps
from neaptide.errors import (
    InfeasibleBudget,
    NeaptideError,
    NumericsError,
    PlanError,
    PlanMismatch,
    StepMismatch,
)
from neaptide.report.model import to_json
from support.steps import QUICK, deep, deep_factory

ROOT = Path(__file__).parent

pytestmark = pytest.mark.usefixtures("traced_once")


@pytest.fixture(scope="module")
def plan():
    _, _, step, batch = deep()
    return neaptide.plan(step, batch, budget="70%", name="deep", **QUICK)


def everything(model, optimizer=None):
    states = () if optimizer is None else (optimizer.state[p].values() for p in model.parameters())
    return [
        *(t.clone() for t in model.state_dict().values()),
        *(e.clone() for state in states for e in state),
    ]


def same(a, b):
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def trained_alike(made, rows=(256,) * 3):
    """A step that was made of eager's, after calls of so many rows: with eager's bits, in all that they leave."""
    model, optimizer, step, batch = deep()
    twin, twin_optimizer, eager, _ = deep()
    fast = made(step)
    for count in rows:
        assert torch.equal(fast(batch[:count]), eager(batch[:count]))
    assert same(everything(model, optimizer), everything(twin, twin_optimizer))
    return fast


# -- plan, explain, save, load, apply


def test_a_plan_keeps_to_its_budget_and_explains_itself(plan):
    program = plan.program("steady")
    assert program.budget_bytes == int(0.7 * program.predictions.baseline_peak_with_workspace_bytes)
    assert program.predictions.peak_with_workspace_bytes <= program.budget_bytes
    assert program.moves.recomputations
    text = plan.explain()
    assert neaptide.explain(plan) == text
    assert "deep" in text
    assert "Recomputed" in text


def test_the_lowest_peak_runs_with_eagers_bits_and_is_what_its_file_says(plan, tmp_path):
    _, _, step, batch = deep()
    least = neaptide.plan(step, batch, budget="min", name="deep", **QUICK)
    for made, other in zip(least.programs, plan.programs, strict=True):
        predicted = made.predictions
        assert predicted.peak_with_workspace_bytes < other.predictions.peak_with_workspace_bytes
        assert made.budget_bytes == predicted.peak_with_workspace_bytes
    assert "the lowest peak found" in least.explain()
    least.save(tmp_path / "plan.json")
    trained_alike(lambda step: neaptide.apply(tmp_path / "plan.json", step))


def test_a_plan_from_its_file_runs_with_eagers_bits(plan, tmp_path):
    plan.save(tmp_path / "plan.json")
    loaded = neaptide.Plan.load(tmp_path / "plan.json")
    assert loaded == plan
    fast = trained_alike(loaded.apply)
    assert fast.plan == plan
    assert fast.counts.planned == 3


def test_a_plan_file_works_in_another_process_and_holds_no_path(plan, tmp_path):
    """Estimated costs and a limit on work give the same file there, byte for byte."""
    plan.save(tmp_path / "plan.json")
    text = (tmp_path / "plan.json").read_text()
    for path in (str(ROOT), str(Path.home()), str(Path.cwd()), "/tmp/"):
        assert path not in text
    found = run_script(
        """
        plan = neaptide.Plan.load(sys.argv[1])
        model, optimizer, step, batch = deep()
        fast = plan.apply(step, on_mismatch="error")
        print(json.dumps([float(fast(batch)) for _ in range(2)]))
        _, _, step, batch = deep()
        neaptide.plan(step, batch, budget="70%", device="rtx3090", seed=3, name="deep", **QUICK).save(sys.argv[2])
        """,
        tmp_path / "plan.json",
        tmp_path / "there.json",
    )
    _, _, eager, batch = deep()
    assert json.loads(found) == [float(eager(batch)) for _ in range(2)]
    _, _, step, batch = deep()
    here = neaptide.plan(step, batch, budget="70%", device="rtx3090", seed=3, name="deep", **QUICK)
    assert here.program("steady").moves.recomputations
    assert here.to_json() == (tmp_path / "there.json").read_text()


def run_script(text: str, *args: object) -> str:
    """Output of a script in a fresh process, with the names of this module at hand."""
    start = (
        "import json, sys, torch, neaptide\nfrom support.steps import deep, QUICK\ntorch.set_num_threads(1)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", start + textwrap.dedent(text), *map(str, args)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("shape", r"batch is float32 of shape \(128, 16\), was float32 of shape \(256, 16\)"),
        ("width", r"\(8, 8\)"),
        ("model", "optimizer"),
        ("dtype", "float64"),
    ],
)
def test_a_plan_for_another_step_names_the_difference(plan, change, told):
    model, _, step, batch = deep(width=8) if change == "width" else deep()
    if change == "model":
        step = steps.simple(model, torch.optim.SGD(model.parameters(), lr=0.1))
    elif change == "shape":
        batch = batch[:128]
    elif change == "dtype":
        model.double()
        batch = batch.double()
    before = everything(model)
    with pytest.raises(PlanMismatch, match=told) as caught:
        plan.apply(step)(batch)
    assert caught.value.exit_code == 4
    assert caught.value.next_step
    assert same(before, everything(model))


def test_a_plan_for_a_card_says_on_another_device_that_its_operations_are_the_cards():
    _, _, step, batch = deep()
    planned = neaptide.plan(step, batch, budget="100%", device="rtx3090", name="deep", **QUICK)
    with pytest.raises(
        PlanMismatch, match="deep is for operations of cuda, and the step is on cpu"
    ) as caught:
        planned.apply(step)(batch)
    assert "rtx3090" in caught.value.why
    assert "plan the step for the device" in caught.value.next_step


# -- compile_step, and the user's own objects


def test_the_users_objects_are_updated_saved_and_loaded_in_the_middle_of_training():
    model, optimizer, step, batch = deep()
    twin, twin_optimizer, eager, _ = deep()
    fast = neaptide.compile_step(step, budget="70%", **QUICK)
    parameters = list(model.parameters())
    assert not optimizer.state
    fast(batch)
    eager(batch)
    assert set(optimizer.state) == set(parameters)
    assert set(optimizer.state[parameters[0]]) == {"step", "exp_avg", "exp_avg_sq"}
    saved = [json_free(model.state_dict()), json_free(optimizer.state_dict())]
    fast(batch)
    model.load_state_dict(saved[0])
    optimizer.load_state_dict(saved[1])
    for _ in range(2):
        assert torch.equal(fast(batch), eager(batch))
    assert all(a is b for a, b in zip(model.parameters(), parameters, strict=True))
    assert same(everything(model, optimizer), everything(twin, twin_optimizer))
    assert fast.plan.program("steady").moves.recomputations


def json_free(state: Any) -> Any:
    """A deep copy, as saving and loading makes one."""
    return torch.utils._pytree.tree_map(lambda x: x.clone() if isinstance(x, torch.Tensor) else x, state)


def test_the_last_short_batch_of_an_epoch_is_normal():
    fast = trained_alike(lambda step: neaptide.compile_step(step, budget="90%", **QUICK), (256, 256, 40) * 2)
    assert (fast.counts.planned, fast.counts.replans) == (6, 1)


def test_a_much_smaller_batch_has_the_bytes_of_the_first_plan():
    """Its own share would be out of reach: it is mostly parameters and optimizer state."""
    _, _, step, batch = deep()
    fast = neaptide.compile_step(step, budget="60%", dynamic=False, **QUICK)
    fast(batch)
    allowed = fast.plan.program("steady").budget_bytes
    with pytest.raises(InfeasibleBudget):
        neaptide.plan(step, batch[:8], budget="60%", device="rtx3090", **QUICK)
    fast(batch[:8])
    predicted = fast.plan.program("steady").predictions
    assert predicted.peak_with_workspace_bytes <= predicted.baseline_peak_with_workspace_bytes < allowed
    assert fast.counts.describe().startswith(
        "2 planned, 0 eager, 1 replanned; mismatches: batch has shape (8"
    )
    fast(torch.randn(512, 16))
    assert fast.plan.program("steady").budget_bytes > allowed, "a larger batch has its own share"


def test_a_plan_that_is_applied_replans_within_the_same_bytes_or_refuses(plan):
    _, _, step, batch = deep()
    fast = plan.apply(step, time_limit_s=0.2)
    fast(batch)
    fast(batch[:64])
    assert fast.counts.replans == 1
    assert fast.plan.program("steady").budget_bytes <= plan.program("steady").budget_bytes
    with pytest.raises(InfeasibleBudget):
        fast(torch.randn(1024, 16))
    fast(batch)
    strict = plan.apply(step, on_mismatch="error")
    strict(batch)
    with pytest.raises(StepMismatch, match="64"):
        strict(batch[:64])


def test_atomic_steps_keep_the_bits_and_say_what_they_cost():
    torch.manual_seed(0)
    step, batch = steps.batch_norm()
    torch.manual_seed(0)
    eager, _ = steps.batch_norm()
    plan = neaptide.plan(step, batch, budget="100%", atomic=True, **QUICK)
    assert plan.atomic
    assert plan.program("steady").predictions.saved_bytes == 96
    fast = plan.apply(step)
    for _ in range(3):
        assert torch.equal(fast(batch), eager(batch))
    report = neaptide.run(steps.batch_norm, plan, steps=2, verify=True)
    assert report.bitwise_equal
    assert report.measured_peak_bytes == report.predicted_peak_bytes


# -- interrupting and killing


def test_an_interrupt_while_planning_gives_the_best_so_far():
    _, _, step, batch = deep()
    interrupt = threading.Event()

    def stop_when_searching(text: str) -> None:
        if text.startswith("planning"):
            interrupt.set()

    with pytest.raises(InfeasibleBudget, match="was interrupted") as caught:
        neaptide.plan(step, batch, budget="70%", interrupt=interrupt, progress=stop_when_searching)
    assert caught.value.plan.program("steady").termination.reason == "interrupted"
    found = neaptide.plan(step, batch, budget="100%", interrupt=interrupt)
    assert found.program("steady").predictions.peak_bytes


# -- profile


def test_a_profile_names_what_is_alive_and_where_it_comes_from():
    _, optimizer, step, batch = deep()
    report = neaptide.profile(step, batch, name="deep")
    assert report.predicted_peak_bytes >= report.lower_bound_bytes >= report.persistent_bytes
    assert report.live_at_peak
    assert any(row.made_at for row in report.live_at_peak)
    sizes = [row.nbytes for row in report.live_at_peak]
    assert sizes == sorted(sizes, reverse=True)
    assert sum(report.bytes_by_kind_at_peak.values()) == report.predicted_peak_bytes
    assert report.capacity_bytes is None
    assert report.workspace_is_known
    written = json.loads(to_json(report))
    assert {"predicted_peak_bytes", "persistent_bytes", "lower_bound_bytes", "live_at_peak"} <= written.keys()
    assert not optimizer.state


def test_a_profile_for_another_device_of_a_model_without_bytes_allocates_nothing():
    def made(width):
        with torch.device("meta"):
            model = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))
            batch = torch.empty(64, width)
        return steps.simple(model, torch.optim.AdamW(model.parameters(), lr=0.1)), batch

    neaptide.profile(*made(8), device="rtx3090")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    report = neaptide.profile(*made(40_000), device="rtx3090")
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert report.predicted_peak_bytes > 2 * 40_000**2 * 4 * 3, "both weights with AdamW's state"
    assert report.fits is False
    assert report.over_bytes > 10 * 2**30
    assert grown * 1024 < 64 * 2**20
    assert report.captured_on == "cuda"
    assert any("CUDA context" in line for line in report.not_counted)


# -- compare and run

ROW_FIELDS = {
    "name", "predicted_peak_bytes", "measured_peak_bytes", "predicted_peak_with_workspace_bytes",
    "measured_allocator_peak_bytes", "persistent_bytes", "step_seconds", "repeats", "loss", "max_abs_diff",
    "bitwise_equal",
}  # fmt: skip
FIELDS = {
    "rows", "budget_bytes", "lower_bound_bytes", "order_lower_bound_bytes", "plan_seconds", "capture_seconds",
    "versions", "seed",
}  # fmt: skip


def test_a_comparison_puts_predicted_beside_measured():
    found = neaptide.compare(
        deep_factory, budget="70%", also=["early_updates"], repeats=2, name="deep", seed=5, **QUICK
    )
    written = json.loads(to_json(found))
    assert written.keys() >= FIELDS
    assert [row["name"] for row in written["rows"]] == ["eager", "baseline", "plan", "early_updates"]
    for row in written["rows"]:
        assert row.keys() >= ROW_FIELDS
        assert row["step_seconds"] > 0
        assert row["repeats"] == 2
        assert row["loss"] == written["rows"][0]["loss"]
        if row["name"] != "eager":
            assert row["predicted_peak_bytes"] == row["measured_peak_bytes"]
            assert row["bitwise_equal"] is True
            groups = {"loss", "gradients", "parameters", "buffers", "optimizer_state"}
            assert row["max_abs_diff"] == dict.fromkeys(groups, 0.0)
    assert (
        found.row("plan").measured_peak_bytes <= found.budget_bytes < found.row("eager").measured_peak_bytes
    )
    assert found.row("baseline").measured_peak_bytes <= found.row("eager").measured_peak_bytes
    assert written["seed"] == 5
    assert {"neaptide", "torch", "python"} <= written["versions"].keys()
    with pytest.raises(KeyError):
        found.row("nobody")


def test_a_comparison_without_eager_or_budget_leaves_those_rows_out():
    found = neaptide.compare(deep_factory, eager=False, repeats=0, **QUICK)
    assert [row.name for row in found.rows] == ["baseline"]
    assert found.budget_bytes is None
    (row,) = found.rows
    assert row.measured_peak_bytes == row.predicted_peak_bytes
    assert (row.step_seconds, row.loss, row.bitwise_equal, row.max_abs_diff) == (None, None, None, {})


def test_a_comparison_for_another_device_is_prediction_only():
    calls = []

    def factory():
        _, _, step, batch = deep()

        def counted(rows: torch.Tensor) -> torch.Tensor:
            return step(rows)

        calls.append(1)
        return counted, batch

    found = neaptide.compare(factory, budget="70%", device="a100-80g", **QUICK)
    assert len(calls) == 1
    assert [row.name for row in found.rows] == ["baseline", "plan"]
    for row in found.rows:
        assert row.predicted_peak_bytes
        assert (row.measured_peak_bytes, row.step_seconds, row.bitwise_equal) == (None, None, None)
    assert found.high_water_mark_bytes is None


def test_a_run_is_verified_and_measured(plan):
    report = neaptide.run(deep_factory, plan, steps=2, verify=True)
    assert report.bitwise_equal
    assert report.predicted_peak_bytes == report.measured_peak_bytes
    assert len(report.losses) == 2
    assert "3 planned" not in report.calls
    assert report.calls.endswith("mismatches: none")
    assert json.loads(to_json(report))["steps"] == 2


def test_numbers_that_differ_from_eagers_are_an_error(plan, monkeypatch):
    from neaptide.runtime.comparing import verification

    usual = verification.compare_records

    def worse(found: Any, expected: Any, *tolerance: Any) -> verification.Verification:
        expected.tensors["parameters"]["0.weight"] += 1
        return usual(found, expected, *tolerance)

    for module in [m for name, m in sys.modules.items() if name.startswith("neaptide.runtime.")]:
        if hasattr(module, "compare_records"):
            monkeypatch.setattr(module, "compare_records", worse)
    with pytest.raises(NumericsError, match="other numbers than eager") as caught:
        neaptide.run(deep_factory, plan, verify=True)
    assert caught.value.exit_code == 5
    assert "parameters: 0.weight" in caught.value.where


def test_every_error_of_ours_has_the_same_root():
    assert issubclass(InfeasibleBudget, NeaptideError)
    assert msgspec.json.encode(list(neaptide.__all__))
    assert set(neaptide.__all__) <= set(dir(neaptide))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = neaptide.nothing


def test_planning_touches_nothing_of_the_users():
    model, optimizer, step, batch = deep(width=12)  # a step of its own: it is traced here
    before, random = everything(model), torch.get_rng_state()
    neaptide.plan(step, batch, budget="70%", **QUICK)
    assert same(before, everything(model))
    assert not optimizer.state
    assert all(p.grad is None for p in model.parameters())
    assert torch.equal(random, torch.get_rng_state())


def test_an_edited_and_a_truncated_file_are_refused_and_nothing_is_run(plan, tmp_path):
    path = tmp_path / "plan.json"
    plan.save(path)
    whole = path.read_text()
    path.write_text(whole.replace('"seed": 0', '"seed": 1'))
    with pytest.raises(PlanError, match="has been changed") as caught:
        neaptide.Plan.load(path)
    assert str(path) in str(caught.value)
    path.write_text(whole[: len(whole) // 2])
    with pytest.raises(PlanError, match="truncated"):
        neaptide.Plan.load(path)


@pytest.mark.slow
def test_a_killed_planning_run_leaves_a_cache_that_works(tmp_path):
    script = """
        _, _, step, batch = deep()
        def told(text):
            print(text, flush=True)
        neaptide.plan(step, batch, budget="60%", progress=told, time_limit_s=60)
        """
    start = "import sys, torch, neaptide\nfrom support.steps import deep\ntorch.set_num_threads(1)\n"
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
        "NEAPTIDE_CACHE_DIR": str(tmp_path),
    }
    process = subprocess.Popen(
        [sys.executable, "-c", start + textwrap.dedent(script)], env=env, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process:
        for line in process.stdout:
            if line.startswith("timing"):
                break
        process.send_signal(signal.SIGKILL)
    for path in tmp_path.glob("*.sqlite3"):
        with sqlite3.connect(path) as store:
            assert store.execute("pragma integrity_check").fetchone() == ("ok",)
        store.close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEAPTIDE_CACHE_DIR", str(tmp_path))
        _, _, step, batch = deep()
        assert neaptide.plan(step, batch, budget="80%", **QUICK).programs
