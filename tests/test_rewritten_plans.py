"""Plans of rewritten graphs from end to end: planned, saved, loaded elsewhere, checked, run, compared with eager."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import neaptide
from neaptide.ask import Ask
from neaptide.budget import Budget
from neaptide.errors import PlanError, UsageError
from neaptide.outcome import Limits
from neaptide.plans import Plan
from neaptide.policy.plan_matching import matched
from neaptide.policy.prepared_step import PreparedStep
from neaptide.runtime.comparing import contestants, verification
from support import catalogue
from support.damaged_files import edited
from support.steps import autocast_step, small_step
from support.together import together

QUICK = {"time_limit_s": None, "work_limit": 100, "in_place": False}  # no rewrites but those asked for
RULE = "common_subexpressions"
FORMAT_1 = Path(__file__).parent / "golden" / "plans" / "format_1.json"


def planned(rewrites=(RULE,), budget=None, **options):
    limits = Limits(work=QUICK["work_limit"])
    ask = Ask(Budget(budget), limits=limits, rewrites=rewrites, in_place=QUICK["in_place"], **options)
    return catalogue.planned(autocast_step, ask).plan


@pytest.fixture(scope="module")
def plan():
    return planned()


@pytest.fixture(scope="module")
def captured():
    return catalogue.captured(autocast_step)


def test_it_takes_fewer_bytes_than_the_captured_graph(plan):
    plain = planned(()).programs[0]
    made = plan.programs[0]
    assert made.predictions.peak_bytes < plain.predictions.peak_bytes
    assert made.node_count < plain.node_count == made.captured.node_count
    assert made.captured_fingerprint == plain.fingerprint == plain.captured_fingerprint
    for name in ("baseline_peak_bytes", "baseline_peak_with_workspace_bytes", "persistent_bytes"):
        assert getattr(made.predictions, name) == getattr(plain.predictions, name)


def test_rules_may_have_the_names_that_they_had_before(plan):
    former = edited(plan, ("captured rewrites 0 rule", "equal_operations"))
    assert '"equal_operations"' in former
    assert Plan.from_json(former) == plan


def test_every_report_names_the_rewrites(plan, captured, caplog):
    line = "common subexpressions run once (common_subexpressions), at 2 places; every bit is kept"
    assert f"Rewritten: {line}." in plan.explain()
    comparison = neaptide.compare(autocast_step, budget="100%", repeats=0, rewrites=[RULE], **QUICK)
    assert f"plan runs a rewritten graph: {line}" in comparison.notes
    caplog.set_level("INFO", logger="neaptide")
    matched(plan, PreparedStep(captured), 1.0)
    assert f"the step runs as a rewritten graph: {line}" in caplog.text


def test_a_call_of_another_shape_is_rewritten_alike(plan):
    step, batch = autocast_step()
    runner = plan.apply(step)
    runner(batch)
    runner(batch[:2])
    assert runner.counts.replans == 1
    assert {rewrite.rule for rewrite in runner.plan.programs[0].rewrites} == {RULE}


@pytest.mark.slow
def test_rewrites_may_be_given_one_by_one(plan):
    assert planned(plan.programs[0].rewrites).programs[0].rewrites == plan.programs[0].rewrites
    one = plan.programs[0].rewrites[:1]
    assert planned(one).programs[0].rewrites == one


def test_unknown_rules_are_refused_before_anything_is_captured():
    with pytest.raises(UsageError, match="no rule is called 'equal'"):
        neaptide.plan(None, budget="100%", rewrites=["equal"])
    with pytest.raises(UsageError, match="alternatives"):
        neaptide.plan(None, budget="100%", rewrites=["rematerialisation"])


# -- edited files


REWRITES = "captured rewrites"
SCRATCH = "captured assumed workspace"
EDITS = {
    "shifted": (
        [(f"{REWRITES} 0 nodes 1", lambda node: node + 1)],
        "steady.captured.rewrites are not legal: rewrite 0 (common_subexpressions) cannot be applied",
    ),
    "swapped": ([(REWRITES, lambda made: made[::-1])], "steady.captured.rewrites are not legal"),
    "dropped": ([(REWRITES, lambda made: made[:-1])], "steady.captured.rewrites make another graph"),
    "doubled": (
        [(REWRITES, lambda made: [*made, made[0]])],
        "steady.captured.rewrites are not legal: rewrite 2",
    ),
    "emptied": ([(REWRITES, [])], "programs[0].captured.rewrites is empty"),
    "of an unknown rule": ([(f"{REWRITES} 0 rule", "all_is_well")], "there is no rule of that name"),
    "keeping no bits": ([(f"{REWRITES} 0 keeps_bits", False)], "its rule says otherwise"),
    "with settings": ([(f"{REWRITES} 0 settings", [["parts", 4]])], "and no settings"),
    "beyond the graph": ([(f"{REWRITES} 0 nodes", [0, 10**6])], "node 1000000 is none of the"),
    "negative": ([(f"{REWRITES} 0 nodes", [-2, -1])], "the plan file lacks a field or has a wrong one"),
    "of another graph": ([("captured fingerprint", "0" * 64)], "does not fit this step"),
    "made into another": ([("fingerprint", "0" * 64)], "steady.captured.rewrites make another graph"),
    "of another size": ([("captured node_count", lambda n: n + 1)], "steady.captured.node_count"),
    "with a lower baseline": (
        [("predictions baseline_peak_bytes", lambda n: n - 4)],
        "steady.predictions.baseline_peak_bytes",
    ),
    "with an invented scratch": (
        [(SCRATCH, [[0, 10**9]])],
        "steady.predictions.baseline_peak_with_workspace_bytes",
    ),
    "with scratch of no node": ([(SCRATCH, [[10**6, 4]])], "steady.captured.assumed.workspace has ids"),
    "of other bytes": ([("predictions peak_bytes", lambda n: n - 4)], "steady.predictions.peak_bytes"),
}


@together("name", [*EDITS, "unmarked"])
def test_an_edited_plan_is_refused_with_one_sentence(plan, captured, name):
    seconds = plan.programs[0].predictions.baseline_seconds
    unmarked = [("captured", None), ("predictions seconds", seconds)], "does not fit this step"
    edits, told = EDITS.get(name, unmarked)
    with pytest.raises(neaptide.errors.NeaptideError) as caught:
        matched(Plan.from_json(edited(plan, *edits)), PreparedStep(captured), 1.0)
    assert told in caught.value.what
    assert "\n" not in caught.value.what


# -- format 1


def test_a_plan_of_format_1_is_read_and_run():
    read = Plan.load(FORMAT_1)
    assert json.loads(FORMAT_1.read_text())["format"] == "neaptide.plan/1"
    assert json.loads(read.to_json())["format"] == "neaptide.plan/2"
    assert Plan.from_json(read.to_json()) == read
    assert not read.programs[0].rewrites
    report = neaptide.run(small_step, FORMAT_1, verify=True)
    assert report.bitwise_equal
    assert report.predicted_peak_bytes == report.measured_peak_bytes


def test_a_plan_of_an_unknown_format_is_refused(plan):
    text = plan.to_json().replace("neaptide.plan/2", "neaptide.plan/3")
    with pytest.raises(PlanError) as caught:
        Plan.from_json(text)
    assert caught.value.why == "this version of neaptide reads 'neaptide.plan/1' and 'neaptide.plan/2'"


ELSEWHERE = """
import sys, json, neaptide, support.steps
for path in sys.argv[1:]:
    report = neaptide.run(support.steps.autocast_step, path, verify=True)
    print(json.dumps([report.bitwise_equal, report.predicted_peak_bytes, report.measured_peak_bytes]))
"""


@pytest.mark.slow
def test_rewritten_plans_run_in_another_process_as_predicted(tmp_path, plan):
    plans = [plan, planned(budget="75%")]
    files = [str(tmp_path / f"plan_{number}.json") for number in range(len(plans))]
    for made, file in zip(plans, files, strict=True):
        rules = [rewrite.rule for rewrite in made.programs[0].rewrites]
        assert rules.count(RULE) == 2
        assert {*rules} <= {RULE, "in_place"}
        made.save(file)
    paths = os.pathsep.join([*sys.path, str(Path(__file__).parent)])
    ran = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, *files],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=True,
    )
    for made, line in zip(plans, ran.stdout.splitlines()[-len(plans) :], strict=True):
        is_equal, predicted, measured = json.loads(line)
        assert is_equal
        assert predicted == measured == made.programs[0].predictions.peak_bytes


def test_a_step_may_be_compiled_with_rewrites_inside_an_arena():
    step, batch = autocast_step()
    runner = neaptide.compile_step(step, budget="100%", rewrites=[RULE], arena=True, **QUICK)
    expected, batch_too = autocast_step()
    for _ in range(2):
        assert runner(batch).equal(expected(batch_too))
    assert runner.plan.programs[0].rewrites


@pytest.mark.slow
def test_an_atomic_plan_may_be_of_a_rewritten_graph():
    made = planned(budget="100%", atomic=True)
    assert made.programs[0].rewrites
    assert made.atomic
    variant = matched(made, PreparedStep(catalogue.captured(autocast_step)), 1.0)
    found, _ = verification.verify_planned(
        autocast_step, 0, contestants.rebind(variant), verification.verify_eager(autocast_step, 0)
    )
    assert found.agrees
    assert found.bitwise_equal
