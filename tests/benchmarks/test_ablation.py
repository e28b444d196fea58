"""What a stage earns: stages that are left out do not run, and worse, better and missed are told apart."""

import json
import math
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import ablation  # noqa: E402
import ablation_cases  # noqa: E402
from neaptide.corpus.recompute_forms import recompute_form  # noqa: E402

WORK = 300


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "remat").mkdir()
    (tmp_path / "remat" / "gpt12.json").write_text(json.dumps(recompute_form("transformer", 30)))
    (tmp_path / "minimalloc").mkdir()
    (tmp_path / "minimalloc" / "A.csv").write_text("id,lower,upper,size\na,0,2,3\nb,1,4,5\nc,3,6,2\n")
    return tmp_path


@pytest.mark.parametrize(
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
    assert [line.split()[0] for line in shown.splitlines()[2:]] == list(ablation_cases.STAGES[room])


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
