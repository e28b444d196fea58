"""The bars of the recompute planner: what is compared with what, on instances small enough for a test."""

import json
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import recompute_bars  # noqa: E402
import recompute_cases  # noqa: E402
import recompute_ratios  # noqa: E402
from neaptide_corpus.recompute_forms import recompute_form  # noqa: E402


@pytest.fixture
def folder(tmp_path):
    for name in ("gpt12", "gpt2.small"):
        (tmp_path / f"{name}.json").write_text(json.dumps(recompute_form("transformer", 40)))
    return tmp_path


def row_of(section, case, folder):
    return {"section": section, "case": " ".join(case[1:])} | recompute_cases.solve(case, folder, 5.0, 5.0)


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


def test_ratios_are_judged_where_they_cost_something(monkeypatch):
    step = recompute_cases.generated("transformer", 60, 0)
    order = tuple(range(step.node_count))
    seconds = sum(step.seconds)
    again = next(n for n in order if step.seconds[n] and step.consumers[n] and step.consumers[n][-1] > n + 9)
    repeated = (*order[: step.consumers[again][-1]], again, *order[step.consumers[again][-1] :])
    monkeypatch.setitem(recompute_ratios._BARS, "x", (0.9, 0.5))
    traced = lambda *_: {1.0: order, 0.5: repeated}  # noqa: E731
    monkeypatch.setattr(recompute_ratios, "_sequences", traced)
    found = recompute_ratios.against_ratios("x", step, {"0.80": None, "0.60": 9.9}, 5.0)
    free, dear = (row for row in found["ratios"] if row["source"] == "PyTorch")
    assert (free["ratio"], free["overhead"], free["quotient"]) == (1.0, 0.0, None)
    assert dear["overhead"] == pytest.approx(step.seconds[again] / seconds)
    assert dear["ours"] <= dear["overhead"]
    assert {row["source"] for row in found["ratios"]} == {"PyTorch", "simulated", "published"}
    assert all(found["met"].values())
    assert len(found["met"]) == 3
    shown = recompute_bars.show("memory_budget", [{"case": "x"} | found])
    assert "quotient" in shown
    row = {"source": "PyTorch", "peak_share": 0.5, "overhead": 0.1, "ours": 0.06, "quotient": 0.6}
    mild = row | {"peak_share": 0.8, "overhead": 0.05, "ours": 0.09, "quotient": 0.9}
    assert list(recompute_ratios._met("x", [row, mild]).values()) == [False, True, False]


def test_sections_that_are_there_are_kept(tmp_path, monkeypatch, capsys):
    ran = []

    def collect(section, *_):
        ran.append(section)
        case = {"section": section, "case": "x", "case_wall_seconds": 1.0, "failure": "too long"}
        return [case]

    monkeypatch.setattr(recompute_bars, "collect", collect)
    for arguments in (["time"], ["time", "small", "--keep"], ["--keep"], ["time"]):
        options = [f"--instances={tmp_path}", f"--output={tmp_path}"]
        monkeypatch.setattr(sys, "argv", ["recompute_bars.py", *arguments, *options])
        recompute_bars.main()
    others = [name for name in recompute_bars.CASES if name not in {"time", "small"}]
    assert ran == ["time", "small", *others, "time"]
    rows = json.loads((tmp_path / "recompute_bars.json").read_text())["rows"]
    assert [row["section"] for row in rows] == list(recompute_bars.CASES)
    assert "x failed: too long" in capsys.readouterr().out


def test_every_section_has_cases_and_a_table():
    assert set(recompute_bars.CASES) == set(recompute_bars._TABLES)
    assert all(recompute_bars.CASES.values())
    budgets = {case[1:] for case in recompute_bars.CASES["table"]}
    assert ("gpt12", "0.23") in budgets
    assert not budgets & {case[1:] for case in recompute_bars.CASES["between"]}
