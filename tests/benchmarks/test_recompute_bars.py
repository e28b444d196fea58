"""The bars of the recompute planner: what is compared with what, on instances small enough for a test."""

import json
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import recompute_bars  # noqa: E402
import recompute_cases  # noqa: E402
from neaptide.corpus.recompute_forms import recompute_form  # noqa: E402


@pytest.fixture
def folder(tmp_path):
    for name in ("gpt12", "gpt2.small"):
        (tmp_path / f"{name}.json").write_text(json.dumps(recompute_form("transformer", 40)))
    return tmp_path


def row_of(section, case, folder):
    return {"section": section, "case": " ".join(case[1:])} | recompute_cases.solve(case, folder, 5.0)


@pytest.mark.parametrize(
    ("section", "case"),
    [
        ("between", ("instance", "gpt12", "0.9")),
        ("between", ("generated", "layered", "40", "1", "0.8")),
        ("small", ("instance", "gpt2.small", "0.70")),
    ],
)
def test_cases_become_rows_of_their_table(section, case, folder):
    shown = recompute_bars.show(section, [row_of(section, case, folder)])
    assert " ".join(case[1:]) in shown
    assert "portfolio" in shown
    assert "bars met:" in shown


def test_failures_and_missed_bars_are_named():
    failed = {"section": "small", "case": "gpt2.small 0.45", "failure": "took too long"}
    assert "gpt2.small 0.45 failed: took too long" in recompute_bars.show("small", [failed])
    row = {
        "case": "x 0.5",
        "nodes": 4,
        "overhead": None,
        "bound_overhead": 0.1,
        "cpu_seconds": 1.0,
        "met": {"gap to the bound": False},
    }
    shown = recompute_bars.show("between", [row])
    assert "none" in shown
    assert "missed: x 0.5: gap to the bound" in shown


def test_bars_are_judged():
    published = {"chain DP": 0.02, "CP-SAT": None, "closure": 0.018, "closure bound": 0.01}
    judge = recompute_cases._against_published
    assert judge({"overhead": 0.0184}, published) == {"no published plan is better": True}
    assert judge({"overhead": 0.0186}, published) == {"no published plan is better": False}
    assert judge({"overhead": None}, published) == {"no published plan is better": False}
    assert judge({"overhead": None}, {"chain DP": None}) == {}
    assert recompute_cases._is_as_proved({"overhead": None, "status": "infeasible"}, None)
    assert not recompute_cases._is_as_proved({"overhead": 0.1, "status": "feasible"}, None)


def test_every_section_has_cases_and_a_table():
    assert set(recompute_bars.CASES) == set(recompute_bars._TABLES)
    assert all(recompute_bars.CASES.values())
    budgets = {case[1:] for case in recompute_bars.CASES["table"]}
    assert ("gpt12", "0.23") in budgets
    assert not budgets & {case[1:] for case in recompute_bars.CASES["between"]}
