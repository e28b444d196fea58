"""Planning with and without stays on the host: what the table says of a step that is small enough for a test."""

import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import offload_planning  # noqa: E402


@pytest.fixture(scope="module")
def row():
    return {"spec": "mlp@tiny"} | offload_planning.planned("mlp@tiny", 300)


def test_plans_with_a_host_are_no_slower_and_take_longer_to_find(row):
    assert row["alone"]["peak_with_workspace_bytes"] <= row["budget_bytes"]
    for link, _ in offload_planning.RATES:
        made = row["links"][link]
        assert made["seconds"] <= row["alone"]["seconds"]
        assert made["peak_with_workspace_bytes"] <= row["budget_bytes"]
        assert offload_planning.ratio(row, link) >= 1.0


def test_models_that_failed_are_told_and_have_no_line(row):
    rows = [row, {"spec": "vit@small", "failure": "killed"}]
    (line,) = offload_planning.lines(rows)
    assert len(line) == len(offload_planning.COLUMNS)
    assert line[0] == "mlp"
    said = offload_planning.said({"rows": rows, "settings": {"work": 300}})
    assert "Each search has 300 units of work." in said
    assert "of 1 models take at most 3x" in said
    assert "vit" in said.partition("Not run: ")[2]


def test_a_plan_above_its_budget_has_no_seconds():
    plan = {"peak_with_workspace_bytes": 11, "seconds": 3.0}
    assert offload_planning.added({"budget_bytes": 10, "baseline_seconds": 2.0}, plan) == "-"
    assert offload_planning.added({"budget_bytes": 11, "baseline_seconds": 2.0}, plan) == "+50.00%"
