"""The benchmark of rules: shares of the captured program, a row for each rule that finds something."""

import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.slow
def test_rows_are_shares_of_the_captured_program(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    rule_gains = pytest.importorskip("rule_gains")
    monkeypatch.setattr(rule_gains, "WORK", 50)
    rows = rule_gains.measure("unet@tiny")
    assert [row["rules"] for row in rows] == [
        [],
        ["in_place"],
        ["piecewise_convolutions"],
        ["piecewise_convolutions", "copied_once", "product_sums", "in_place"],
    ]
    first, last = rows[0], rows[-1]
    assert first["peak"] == first["seconds"] == 1.0
    assert last["places"] > 0
    assert last["peak"] < 1.0
    for row in rows:
        assert all(found is None or found <= row["peak"] for found in row["peak_within"])
        assert len(rule_gains.cells(row)) == len(rule_gains.COLUMNS)
