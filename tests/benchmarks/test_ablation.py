"""What a stage earns: stages that are left out do not run, and worse, better and missed are told apart."""

import dataclasses
import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import ablation  # noqa: E402
import ablation_cases  # noqa: E402
import ablation_settings  # noqa: E402
from neaptide.outcome import Limits  # noqa: E402
from neaptide.planner import portfolio  # noqa: E402
from neaptide.planner.objective import PlanningProblem  # noqa: E402
from neaptide.planner.recompute import settings as recompute  # noqa: E402
from neaptide.planner.strategies import greedy_recompute  # noqa: E402
from neaptide.planner.strategies.program_order import baseline  # noqa: E402
from neaptide_corpus.recompute_forms import recompute_form  # noqa: E402
from recompute_cases import generated  # noqa: E402
from together import together  # noqa: E402

WORK = 300


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "remat").mkdir()
    (tmp_path / "remat" / "gpt12.json").write_text(json.dumps(recompute_form("transformer", 30)))
    (tmp_path / "minimalloc").mkdir()
    (tmp_path / "minimalloc" / "A.csv").write_text("id,lower,upper,size\na,0,2,3\nb,1,4,5\nc,3,6,2\n")
    return tmp_path


@pytest.mark.slow
@together(
    ("room", "case"),
    [
        ("recompute", ("instance", "gpt12", "0.80")),
        ("recompute", ("generated", "layered", "30", "1", "0.7")),
        ("layout", ("challenging", "A")),
        ("layout", ("generated", "mixed", "12", "1")),
        ("order", ("generated", "local", "12", "1")),
    ],
)
def test_a_case_becomes_a_column_of_stages(room, case, folder):
    found = ablation_cases.ablate(room, case, folder, WORK)
    assert set(found["without"]) == {ablation_cases.WHOLE, *ablation_cases.STAGES[room]}
    shown = ablation.show(room, [{"room": room, "case": " ".join(case), **json.loads(json.dumps(found))}])
    assert [line.split("  ")[0] for line in shown.splitlines()[2:]] == list(ablation_cases.STAGES[room])


def test_all_recorded_instances_are_cases(folder):
    assert len(ablation_cases.cases("recompute", folder, ())) == len(ablation_cases.PUBLISHED)
    assert ("challenging", "A") in ablation_cases.cases("layout", folder, ())
    assert ablation_cases.cases("layout", None, ())
    assert len(ablation_cases.cases("order", None, (1, 2))) > len(ablation_cases.cases("order", None, (1,)))


def answer(value, *, missed=False):
    return {"value": value, "missed": missed, "proved": False, "work": 1, "cpu_seconds": 1.0}


def test_losses_are_shares_and_a_missed_budget_is_beyond_all():
    assert ablation.loss("layout", answer(100), answer(110)) == pytest.approx(0.1)
    assert ablation.loss("recompute", answer(0.2), answer(0.25)) == pytest.approx(0.05)
    assert ablation.loss("recompute", answer(0.2), answer(0.01, missed=True)) == math.inf
    assert ablation.loss("recompute", answer(0.2, missed=True), answer(0.3)) == -math.inf


def test_failures_are_named():
    shown = ablation.show("order", [{"room": "order", "case": "network x", "failure": "took too long"}])
    assert "network x failed: took too long" in shown


def test_counts_stay_above_zero_and_shares_may_be_small():
    @dataclass(frozen=True)
    class Settings:
        count: int = 1
        share: float = 0.1
        widths: tuple[int, ...] = (1, 8)

    found = ablation_settings.changed(Settings())
    assert found["count half"] == Settings()
    assert found["share half"] == Settings(share=0.05)
    assert found["widths twice"] == Settings(widths=(2, 16))
    assert found["widths half"] == Settings(widths=(1, 4))


def test_settings_of_recomputation_reach_its_searches_and_are_put_back():
    usual = recompute.SETTINGS
    chosen = dataclasses.replace(usual, nodes_per_try=1)
    step = generated("skips", 24, 1)
    problem = PlanningProblem(step, int(0.6 * baseline(step).peak_with_workspace_bytes))

    def work():
        return greedy_recompute.solve(problem, Limits(work=10 * WORK)).work

    before = work()
    with ablation_settings.other_settings(usual, chosen):
        assert greedy_recompute.SETTINGS is portfolio.SETTINGS is chosen
        assert work() > before
    assert greedy_recompute.SETTINGS is portfolio.SETTINGS is usual
    assert work() == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        ("budget", "layered", "20", "1", "0.7"),
        ("least", "skips", "20", "1", "1.1"),
        ("curve", "skips", "20", "1"),
    ],
)
def test_each_kind_of_question_has_an_answer_that_smaller_is_better(case):
    solve = ablation_settings.recompute_solver(case, None)
    usual, same = (solve(Limits(work=WORK), ()) for _ in range(2))
    assert usual == same
    assert solve(Limits(work=WORK), ("misses half",)).keys() == usual.keys()
    assert math.isfinite(usual["value"])
