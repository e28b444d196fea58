"""The table of stays on the host: what it says of a step that is small enough for a test."""

import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import offload_budgets  # noqa: E402


@pytest.fixture(scope="module")
def result():
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(offload_budgets, "SHARES", (0.4,))
        patched.setattr(offload_budgets, "LINKS", offload_budgets.LINKS[::2])
        patched.setattr(offload_budgets, "WORK", 500)
        return offload_budgets.collect("mlp@tiny")


def test_both_together_are_never_worse_than_recomputation_alone(result):
    assert len(result["rows"]) == 2
    for row in result["rows"]:
        assert row["both"]["seconds"] <= row["recompute"]["seconds"]
        assert row["both"]["host_bytes"] <= offload_budgets.HOST_BYTES
        assert row["recompute"]["stays"] == 0


def test_rows_become_lines(result):
    lines = offload_budgets.lines(result["rows"])
    assert [line[:2] for line in lines] == [["PCIe 4 x16", "40%"], ["PCIe 4 x1", "40%"]]
    assert all(len(line) == len(offload_budgets.COLUMNS) for line in lines)


def test_a_plan_above_its_budget_has_no_seconds():
    found = {"peak_with_workspace_bytes": 11, "seconds": 3.0}
    assert offload_budgets.added({"both": found, "budget_bytes": 10, "baseline_seconds": 2.0}, "both") == "-"
    assert (
        offload_budgets.added({"both": found, "budget_bytes": 11, "baseline_seconds": 2.0}, "both")
        == "+50.00%"
    )
