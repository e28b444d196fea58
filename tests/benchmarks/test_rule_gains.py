"""The benchmark of rules: shares of the captured program, a row for each rule that finds something."""

import sys
from pathlib import Path

import pytest

from neaptide.transform.rules import RULES

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def rule_gains(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    return pytest.importorskip("rule_gains")


def test_each_rule_has_a_row_or_a_reason(rule_gains):
    first = {rules[0] for rules in rule_gains.RULE_SETS if rules}
    assert first | rule_gains.WITHOUT_ROW.keys() == RULES.keys()
    assert not first & rule_gains.WITHOUT_ROW.keys()


def test_rows_of_other_steps_are_kept_in_the_order_of_steps(rule_gains):
    first, second, *_ = rule_gains.STEPS
    before = [{"step": first, "peak": 1}, {"step": second, "peak": 2}, {"step": "else", "peak": 3}]
    made = rule_gains.merged([{"step": first, "peak": 4}], before)
    assert [(row["step"], row["peak"]) for row in made] == [(first, 4), (second, 2), ("else", 3)]


@pytest.mark.slow
def test_masks_drawn_apart_have_a_row(monkeypatch, rule_gains):
    monkeypatch.setattr(rule_gains, "WORK", 50)
    rows = rule_gains.measure("fused_dropouts@tiny")
    (row,) = (row for row in rows if row["rules"] == ["split_dropout"])
    assert row["places"] == 2


@pytest.mark.slow
def test_rows_are_shares_of_the_captured_program(monkeypatch, rule_gains):
    monkeypatch.setattr(rule_gains, "WORK", 50)
    rows = rule_gains.measure("unet@tiny")
    assert [row["rules"] for row in rows] == [
        [],
        ["in_place"],
        ["concat_before_convolution"],
        ["concat_before_convolution", "redundant_copies", "accumulate_in_gemm", "in_place"],
    ]
    first, last = rows[0], rows[-1]
    assert first["peak"] == first["seconds"] == 1.0
    assert last["places"] > 0
    assert last["peak"] < 1.0
    for row in rows:
        assert all(found is None or found <= row["peak"] for found in row["peak_within"])
        assert len(rule_gains.cells(row)) == len(rule_gains.COLUMNS)
