"""`neaptide recompute` and `neaptide sweep`, on instances and on a program."""

import json
import re
from pathlib import Path

import pytest

from neaptide.corpus.recompute_forms import recompute_form
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.recompute_form import from_json

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "recompute-form.md").read_text(encoding="utf-8")
WORK = ("--work-limit", "30000")


@pytest.fixture
def instance(tmp_path):
    (tmp_path / "instance.json").write_text(json.dumps(recompute_form("transformer", 50)))
    return "instance.json"


def problem(name):
    return from_json(Path(name).read_bytes())


def test_json_has_all_that_the_page_says(call, instance, tmp_path):
    ending = call(
        "recompute", instance, "--peak", "80%", "--json", "--also", "closure", "-o", "out.json", *WORK
    )
    assert ending.code == 0
    content = json.loads(ending.out)
    assert json.loads((tmp_path / "out.json").read_text()) == content
    step = problem(instance)
    peak = Evaluator(step).peak
    assert content["budget_bytes"] == int(0.8 * peak)
    assert Evaluator(step, content["sequence"]).peak == content["peak_bytes"] <= content["budget_bytes"]
    seconds = step.sequence_seconds(content["sequence"])
    assert seconds / step.baseline_seconds - 1 == pytest.approx(content["overhead"])
    assert 0 < content["bound_overhead"] <= content["overhead"] + 1e-12
    assert set(content["methods"]) == {"default", "closure"}
    assert content["methods"]["default"]["overhead"] == content["overhead"]
    for key in (*content, *content["methods"]["closure"]):
        assert f"`{key}`" in PAGE


def test_a_strategy_can_be_chosen_and_the_table_names_it(call, instance):
    ending = call("recompute", instance, "--peak", "80%", "--strategy", "greedy_recompute", *WORK)
    assert ending.code == 0
    assert "greedy_recompute" in ending.out
    assert "within the budget" in ending.out
    assert "No plan with this order" in ending.out


def test_a_budget_out_of_reach_ends_with_3_and_still_prints(call, instance):
    ending = call("recompute", instance, "--peak", "1%", "--json", *WORK)
    assert ending.code == 3
    content = json.loads(ending.out)
    assert content["bound_overhead"] is None
    assert content["status"] == "infeasible"
    assert content["peak_bytes"] > content["budget_bytes"]
    assert set(content["sequence"]) == set(range(problem(instance).node_count))
    assert "not reached" in call("recompute", instance, "--peak", "1%", *WORK).out


def test_sweep_prints_a_curve_and_writes_table_and_picture(call, instance, tmp_path):
    options = ("--points", "4", "-o", "curve.csv", "--picture", "curve.svg", *WORK)
    ending = call("sweep", instance, "--json", *options)
    assert ending.code == 0
    content = json.loads(ending.out)
    points = content["points"]
    assert len(points) == 4
    assert points[0]["peak_bytes"] == content["baseline_peak_bytes"]
    assert points[-1]["peak_bytes"] == content["lowest_peak_bytes"] >= content["lowest_bound_bytes"]
    overheads = [point["overhead"] for point in points]
    assert overheads == sorted(overheads)
    for key in (*content, *points[0]):
        assert f"`{key}`" in PAGE
    rows = (tmp_path / "curve.csv").read_text().splitlines()
    assert rows[0] == "budget_bytes,peak_bytes,overhead,bound_overhead,strategy"
    assert len(rows) == 5
    assert (tmp_path / "curve.svg").read_text().startswith("<svg")
    text = call("sweep", instance, "--points", "4", *WORK).out
    assert "time against memory" in text
    assert "of 4 budgets proved" in text


def test_sweep_of_a_program(call):
    pytest.importorskip("torch")
    ending = call("sweep", "zoo:mlp@tiny", "--points", "3", "--json", *WORK)
    assert ending.code == 0
    content = json.loads(ending.out)
    assert content["lowest_peak_bytes"] < content["baseline_peak_bytes"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("recompute", "instance.json"), "planned for a budget"),
        (("recompute", "none.json", "--peak", "50%"), "cannot be read"),
        (("recompute", "zoo:mlp@tiny", "--peak", "50%"), "is no recompute instance"),
        (("recompute", "bad.json", "--peak", "50%"), "cannot be read"),
        (
            ("recompute", "instance.json", "--peak", "50%", "--strategy", "best"),
            "no strategy is called 'best'",
        ),
        (("recompute", "instance.json", "--peak", "50%", "--also", "worst"), "no strategy is called 'worst'"),
        (("sweep", "instance.json", "--points", "1"), "at least 2"),
        (("sweep", "instance.json", "--picture", "curve.gif"), "is no picture"),
    ],
)
def test_mistakes(call, instance, tmp_path, arguments, words):
    (tmp_path / "bad.json").write_text("[{}]")
    ending = call(*arguments)
    assert ending.code == 2
    assert words in ending.err


def test_example_of_the_page_is_an_instance():
    example = re.search(r"```json\n(.*?)```", PAGE, re.DOTALL).group(1)
    step = from_json(example)
    assert step.node_count == 4
    assert step.seconds[2] == 2e-8
