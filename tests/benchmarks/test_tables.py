"""Every benchmark can be imported; pages say what their results say; rows are checked as their tables promise."""

import importlib
import json
import math
from pathlib import Path

import pytest
import torch

import ablation
import fission_runs
import fission_steps
import front_page
import layout_bars
import magis_zoo
import quote_results
import recompute_bars
import recompute_cases
import recompute_zoo
import rule_gains
from bench_record import MIB
from hand_micro_batches import CannotSplitError, by_hand
from neaptide import zoo
from neaptide.transform.rules import RULES
from quoting import quoted
from support.together import together

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
ROUNDING = 1e-5


@together("name", [path.stem for path in BENCHMARKS.glob("*.py")])
def test_every_benchmark_finds_what_it_measures(name):
    importlib.import_module(name)


def test_pages_and_pictures_are_those_of_the_results():
    page = quote_results.PAGE.read_text(encoding="utf-8")
    assert quote_results.filled(page) == page
    result = json.loads((front_page.RESULTS / "front_page.json").read_text(encoding="utf-8"))
    page = front_page.README.read_text(encoding="utf-8")
    assert front_page.written(result, page) == (page, front_page.PICTURE.read_text(encoding="utf-8"))


def test_filling_in_a_page_twice_changes_nothing_and_one_without_markers_is_refused():
    page = "before\n<!-- bars:begin -->\nold\n<!-- bars:end -->\nafter\n"
    once = quoted(page, "new", "bars")
    assert once == page.replace("old", "new")
    assert quoted(once, "new", "bars") == once
    with pytest.raises(ValueError, match="fission:begin"):
        quoted(page, "new", "fission")


def test_a_curve_ends_at_the_peak_that_was_allocated():
    kept = torch.zeros(1000)

    def run():
        large = torch.zeros(5000)
        small = large[:10] + 1
        del large
        return small.sum() + torch.zeros(100).sum()

    tensors = 4 * (1000 + 5000 + 10)
    assert tensors <= max(front_page.curve(run, lambda: [kept])) < tensors + 100  # PyTorch wraps numbers


def test_every_rule_and_every_section_has_rows():
    first = {rules[0] for rules in rule_gains.RULE_SETS if rules}
    assert first | rule_gains.WITHOUT_ROW.keys() == RULES.keys()
    assert not first & rule_gains.WITHOUT_ROW.keys()
    assert set(recompute_bars.CASES) == set(recompute_bars._TABLES)
    assert all(recompute_bars.CASES.values())
    for section in layout_bars.SECTIONS:
        cases = layout_bars.cases(section, BENCHMARKS, BENCHMARKS)
        assert {case[0] for case in cases} <= layout_bars.layout_cases.KINDS.keys()


def test_losses_are_shares_and_a_missed_budget_is_beyond_all():
    def answer(value, *, missed=False):
        return {"value": value, "missed": missed, "proved": False, "work": 1, "cpu_seconds": 1.0}

    assert ablation.loss("layout", answer(100), answer(110)) == pytest.approx(0.1)
    assert ablation.loss("recompute", answer(0.2), answer(0.25)) == pytest.approx(0.05)
    assert ablation.loss("recompute", answer(0.2), answer(0.01, missed=True)) == math.inf
    assert ablation.loss("recompute", answer(0.2, missed=True), answer(0.3)) == -math.inf


def test_recomputation_is_judged_beside_what_is_published_and_proved():
    published = {"chain DP": 0.02, "CP-SAT": None, "closure": 0.018, "closure bound": 0.01}
    check = recompute_cases._against_published
    assert check({"overhead": 0.0184}, published) == {"no published plan is better": True}
    assert check({"overhead": 0.0186}, published) == {"no published plan is better": False}
    assert check({"overhead": None}, {"chain DP": None}) == {}
    assert recompute_cases._is_as_proved({"overhead": None, "status": "infeasible"}, None)
    assert not recompute_cases._is_as_proved({"overhead": 0.1, "status": "feasible"}, None)


@together(("missed", "row"), [(0, {"is_held": False}), (1, {"bitwise_equal": False}), (None, {})])
def test_a_bar_that_a_plan_misses_names_it(missed, row):
    ran = {
        "measured_allocator_peak_bytes": MIB,
        "cpu_ratio": 1.1,
        "cpu_ratio_low": 1.0,
        "cpu_ratio_high": 1.2,
    }
    made = (
        {"program": "plan 50 %", "budget_bytes": 2 * MIB, "bitwise_equal": True, "is_held": True} | ran | row
    )
    model = {"spec": "mlp@small", "seconds": 3.0, "cpu_seconds": {}, "programs": [made]}
    found = recompute_zoo.bars([model])
    assert [met for *_, met in found] == [number != missed for number in range(3)]
    assert missed is None or "mlp@small plan 50 %" in found[missed][1]


def test_ours_must_be_in_time_and_not_above_any_other():
    def row(ours, *wholes):
        parts = [{"parts": 2, "peak_share": peak, "overhead": time} for peak, time in wholes]
        mine = {"peak_share": ours[0], "overhead": ours[1]}
        return {"net": "bert", "ours": {"+10%": mine}, "micro_batch": parts}

    assert magis_zoo.is_on_or_below(row((0.18, 0.09), (0.2, 0.05), (0.1, 0.11)), "+10%")
    assert not magis_zoo.is_on_or_below(row((0.18, 0.11)), "+10%")  # too slow
    assert not magis_zoo.is_on_or_below(row((0.21, 0.09), (0.2, 0.05)), "+10%")  # a whole step is lower
    assert not magis_zoo.is_on_or_below(row((0.195, 0.09)), "+10%")  # the released search is


@together(
    ("peak", "ratio", "others", "is_lost"),
    [
        (30, 1.0, [("a", 30, 1.09), ("b", 20, 1.2)], False),
        (31, 1.0, [("a", 30, 1.0)], True),
        (10, 1.2, [("a", 30, 1.0)], True),
    ],
)
def test_the_lowest_of_the_others_within_the_time_is_what_ours_has_to_reach(peak, ratio, others, is_lost):
    def ran(name, nbytes, took, **row):
        measured = {"measured_allocator_peak_bytes": nbytes, "peak_share": nbytes / 100, "cpu_ratio": took}
        return {"program": name, "cpu_ratio_low": took, "cpu_ratio_high": took} | measured | row

    exact = {"predicted_above": 0, "predicted_with_workspace_above": 0, "predicted_ratio": ratio}
    ours = ran("ours for 1.10", peak, ratio, kind="ours", chosen_for=[10], **exact)
    programs = [ran("eager", 100, 1.0), *(ran(*other) for other in others), ours]
    (found,) = fission_runs.envelope({"spec": "mlp@tiny", "latencies": [10], "programs": programs})
    assert found["is_on_or_below"] == (not is_lost)
    assert ("NOT" in fission_runs.verdict("mlp@tiny", found)) == is_lost


def made(spec):
    return (
        fission_steps.factory(spec) if spec.partition("@")[0] in fission_steps.NAMES else zoo.factory(spec)
    )()


@together("spec", ["lstm@tiny"])
def test_micro_batches_by_hand_have_the_losses_of_the_whole(spec):
    (step, batch), whole = made(spec), made(spec)
    torch.manual_seed(0)
    found = [float(by_hand(spec, step, batch, 2)()) for _ in range(1)]
    torch.manual_seed(0)
    assert found == pytest.approx([float(whole[0](whole[1]))], rel=ROUNDING)
    with pytest.raises(CannotSplitError, match="cannot split"):
        by_hand("resnet50@tiny", *made("resnet50@tiny"), 2)
