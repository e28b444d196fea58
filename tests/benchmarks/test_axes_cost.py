"""The benchmark of axes: every node is in one class, and the page quotes what was kept."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def axes_cost(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    return pytest.importorskip("axes_cost")


def test_every_node_of_a_model_is_in_one_class(axes_cost):
    row = axes_cost.measure("mlp@tiny", 1)
    counts = [row[name] for name in ("in_parts", "whole", "untouched", "not_classified")]
    assert sum(counts) == row["nodes"]
    assert row["in_parts"] > 0.5 * row["nodes"]
    assert row["not_classified"] == 0
    assert len(axes_cost.cells(row)) == len(axes_cost.COLUMNS)


def test_the_page_quotes_the_kept_result(axes_cost):
    result = json.loads((axes_cost.RESULTS / "axes_cost.json").read_text(encoding="utf-8"))
    page = axes_cost.PAGE.read_text(encoding="utf-8")
    for row in result["rows"]:
        assert f"| {' | '.join(axes_cost.cells(row))} |" in page
