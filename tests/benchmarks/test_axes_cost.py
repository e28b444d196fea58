"""The benchmark of axes: every node is in one class."""

from __future__ import annotations

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
