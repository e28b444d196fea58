import importlib.util
from dataclasses import replace
from pathlib import Path

from neaptide.plans import BudgetRecord, MovesSummary, PartsRecord, TerminationRecord, TriedVariant
from neaptide.report.cells import byte_cell
from neaptide.report.comparison_text import comparison_document, is_within_budget
from neaptide.report.device_notes import not_counted
from neaptide.report.model import ShapePeak, ShapeRanges
from neaptide.report.plan_text import plan_text
from neaptide.report.profile_text import profile_document
from neaptide.report.run_text import run_document
from together import together

_spec = importlib.util.spec_from_file_location("report_samples", Path(__file__).with_name("samples.py"))
samples = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(samples)
MIB = samples.MIB


def test_profile_golden(golden):
    golden("report/profile.txt", profile_document(samples.profile()).plain() + "\n")


def test_profile_of_a_device_golden(golden):
    report = samples.profile(
        device="rtx4090", capacity_bytes=360 * MIB, fits=False, over_bytes=20 * MIB, workspace_is_known=False
    )
    golden("report/profile_device.txt", profile_document(report).plain() + "\n")


def test_comparison_golden(golden):
    golden("report/comparison.txt", comparison_document(samples.comparison()).plain() + "\n")


def test_plan_golden(golden):
    golden("report/plan.txt", plan_text(samples.plan(), path="best.json") + "\n")


def test_run_golden(golden):
    golden("report/run.txt", run_document(samples.run()).plain() + "\n")


@together(
    ("changes", "expected"),
    [
        (
            {"capacity_bytes": 400 * MIB, "fits": True, "over_bytes": -20 * MIB},
            ["Fits this-machine: 20.00 MiB to spare.", "--device this-machine   (it fits; a plan makes room"],
        ),
        (
            {"capacity_bytes": 100 * MIB, "fits": False, "over_bytes": 280 * MIB},
            ["Does not fit", "Next: a smaller batch or model, as no plan goes below 120.00 MiB"],
        ),
        ({"lower_bound_bytes": 380 * MIB}, ["Why not lower: the lower bound is reached"]),
        ({"order_lower_bound_bytes": 120 * MIB}, ["no plan goes below 120.00 MiB.\n"]),
        ({"unknown_ops": ("mylib.op",)}, ["left alone:\n  - mylib.op"]),
        ({"seconds_are_measured": True}, ["measured here"]),
        ({"peak_at": "", "peak_module": "", "peak_phase": ""}, ["At the peak: 67 % activation"]),
    ],
)
def test_profile_says(changes, expected):
    text = profile_document(samples.profile(**changes)).plain()
    for part in expected:
        assert part in text


def test_a_profile_tells_of_ranges():
    peaks = (ShapePeak({"B": 2, "T": 16}, 1 << 20), ShapePeak({"B": 64, "T": 16}, 1 << 24))
    ranges = ShapeRanges(("B in 2..64", "T in 16.."), ("B == 2*T",), ("B ends there: model.py:3",), peaks)
    text = profile_document(samples.profile(ranges=ranges)).plain()
    assert "  - B in 2..64" in text
    assert "  - where B == 2*T" in text
    assert "model.py:3" in text
    assert "B = 64, T = 16" in text
    assert byte_cell(1 << 24) in text


def test_profile_without_rows_has_no_empty_table():
    assert "alive at the peak" not in profile_document(samples.profile(alive_at_peak=())).plain()


@together(
    ("changes", "within", "expected"),
    [
        (
            {},
            True,
            ["Budget: 228.00 MiB, 60 % of the baseline's 380.00 MiB; held by plan with 2.00 MiB to spare."],
        ),
        (
            {"budget_bytes": 200 * MIB},
            False,
            ["NOT held: plan is 26.00 MiB above it", "smallest peak that was found", "--peak 226MiB"],
        ),
        (
            {"rows": (samples.BASELINE, samples.planned(measured_allocator_peak_bytes=230 * MIB))},
            False,
            [
                "NOT held: plan is 2.00 MiB above it",
                "predicted at 226.00 MiB; no plan holds what was measured",
            ],
        ),
        ({"budget_bytes": 100 * MIB}, False, ["proved, no plan of these moves goes below 120.00 MiB"]),
        ({"budget_bytes": None}, True, ["Budget: none given; plans may use", "no budget asks for it"]),
        ({"lower_bound_bytes": 226 * MIB}, True, ["Why not lower: the lower bound is reached."]),
        ({"rows": (samples.EAGER,)}, True, ["nothing was planned"]),
        ({"rows": (samples.EAGER,), "budget_bytes": None}, True, ["none given, so nothing was planned."]),
        ({"rows": (samples.BASELINE, samples.planned())}, True, ["step time against baseline"]),
    ],
)
def test_comparison_says(changes, within, expected):
    comparison = samples.comparison(**changes)
    assert is_within_budget(comparison) is within
    for part in expected:
        assert part in comparison_document(comparison).plain()


def test_comparison_shows_the_groups_that_differ_and_one_column_for_each_program():
    early = samples.planned(name="early_updates", max_abs_diff={"buffers": 0.0, "optimizer_state": 3e-9})
    text = comparison_document(samples.comparison(rows=(*samples.comparison().rows, early))).plain()
    header = text.splitlines()[2]
    assert [cell.strip() for cell in header.strip("|").split("|")][1:] == [
        "eager",
        "baseline",
        "plan",
        "early_updates",
    ]
    assert "largest buffer difference" in text
    assert "largest optimizer state difference" in text
    assert "largest buffer difference" not in comparison_document(samples.comparison()).plain()


def test_a_comparison_that_was_not_run_shows_predictions_only():
    rows = tuple(
        replace(
            row,
            measured_peak_bytes=None,
            measured_allocator_peak_bytes=None,
            step_seconds=None,
            step_cpu_seconds=None,
            loss=None,
            max_abs_diff={},
            bitwise_equal=None,
            repeats=0,
        )
        for row in (samples.BASELINE, samples.planned())
    )
    text = comparison_document(samples.comparison(rows=rows, device="rtx4090")).plain()
    assert text.startswith("zoo:gpt2@small on rtx4090: predicted, nothing was run\n")
    assert "measured" not in text
    assert "difference" not in text
    assert text.endswith("Next: neaptide plan zoo:gpt2@small --peak 228MiB --device rtx4090 -o plan.json")
    assert "peak, predicted" in text


def test_numbers_for_a_device_of_another_kind_are_called_predicted_only():
    warning = (
        "Predicted only: captured with CPU kernels (attention takes the CPU path); rtx4090 may run others."
    )
    assert warning in profile_document(samples.profile(device="rtx4090", captured_on="cpu")).plain()
    assert warning in plan_text(samples.plan(device="rtx4090", captured_on="cpu"))
    for device, captured_on in (("rtx4090", "cuda"), ("rtx4090", ""), ("this-machine", "cpu")):
        assert "Predicted only" not in plan_text(samples.plan(device=device, captured_on=captured_on))


def test_what_is_not_counted_is_of_the_kind_of_device():
    assert any("oneDNN" in line for line in not_counted("cpu"))
    assert any("cuDNN" in line for line in not_counted("cuda"))
    assert not set(not_counted("cpu")) & set(not_counted("cuda"))


def test_a_plan_without_a_budget_blames_none():
    text = plan_text(samples.plan(budget=BudgetRecord()))
    assert "Budget: none given; no higher than the baseline." in text
    assert "Why not lower: no budget asks for it; no plan goes below 120.00 MiB." in text
    assert "nothing lower was found within the latency" in plan_text(
        samples.plan(budget=BudgetRecord(None, "+30%"))
    )


def test_a_plan_that_breaks_its_budget_says_so():
    over = samples.program(budget_bytes=200 * MIB)
    assert "NOT held: 26.00 MiB above it" in plan_text(samples.plan(over))
    proved = samples.program(budget_bytes=100 * MIB)
    assert "Why not lower: proved" in plan_text(samples.plan(proved))


def test_a_plan_says_whether_it_keeps_to_the_latency():
    slow = samples.plan(budget=BudgetRecord("60%", "700ms"))
    assert "Latency: limit 700 ms, predicted 790 ms; NOT held." in plan_text(slow)


def test_a_plan_without_moves_or_programs():
    still = samples.program(
        moves=MovesSummary(),
        predictions=samples.predictions(lower_bound_bytes=226 * MIB),
        termination=TerminationRecord("optimal"),
    )
    text = plan_text(samples.plan(still, budget=BudgetRecord(), name="", device=""))
    assert "Recomputed: nothing." in text
    assert "Why not lower: the lower bound is reached." in text
    assert "the search ended optimal. " in text
    assert "Budget: none given, so nothing is recomputed" in text
    assert "Next: save the plan" in text
    assert "--plan" not in text
    assert "other programs" not in text
    assert "no programs" in plan_text(replace(samples.plan(), programs=()))


@together(
    ("changes", "expected"),
    [
        ({"bitwise_equal": True}, "every tensor has the same bits"),
        (
            {"bitwise_equal": False, "max_abs_diff": {"loss": 0.0, "optimizer_state": 1e-8}},
            "largest differences: loss 0, optimizer state 1.0e-08.",
        ),
        ({"steps": 1}, "1 step of the plan"),
    ],
)
def test_run_says(changes, expected):
    assert expected in run_document(samples.run(**changes)).plain()


def test_bounds_of_a_rewritten_graph_say_so():
    text = comparison_document(samples.comparison(bounds_are_of_rewritten=True)).plain()
    assert "for any plan of the rewritten graph" in text
    assert "of the rewritten graph" not in comparison_document(samples.comparison()).plain()


def test_a_comparison_within_a_time_says_that_nothing_lower_was_found_in_it():
    text = comparison_document(samples.comparison(is_for_bytes=True)).plain()
    assert "nothing lower was found within the time" in text
    assert "the search was for time" not in text


def test_a_plan_says_which_regions_may_run_in_parts_and_what_was_planned():
    record = PartsRecord(
        ("forward and backward along dim 0 of batch_0: 8 long, 300 MiB made in parts",),
        (
            TriedVariant("as it is", 226 * MIB, 0.79),
            TriedVariant("what lies behind h3 in 2 parts", 90 * MIB, 0.8),
        ),
        95 * MIB,
        tuple(f"forward and backward along dim {dim} of tokens: it is refused" for dim in range(8)),
    )
    text = plan_text(samples.plan(samples.program(parts=record)))
    assert "With at most" not in text
    assert "Not looked at" not in text
    bounded = replace(record, regions_left_out=3, most_parts=2, most_parts_lower_bound_bytes=190 * MIB)
    told = plan_text(samples.plan(samples.program(parts=bounded)))
    assert (
        "With at most 2 parts along each, as here, none goes below 190.00 MiB, 50 % of the baseline." in told
    )
    same = replace(bounded, most_parts_lower_bound_bytes=95 * MIB)
    assert "With at most 2 parts along each, as here, that is the same." in plan_text(
        samples.plan(samples.program(parts=same))
    )
    assert "Not looked at: 3 more regions with fewer bytes made in parts." in told
    assert "Looked at and left out:\n  - forward and backward along dim 0 of tokens: it is refused" in text
    assert "along dim 5 of tokens: it is refused\n  - 2 more" in text
    assert "Regions that may run in parts:\n  - forward and backward along dim 0" in text
    assert "No plan with parts along their axes goes below 95.00 MiB, 25 % of the baseline." in text
    assert "what lies behind h3 in 2 parts | " in text


def test_where_no_region_may_run_in_parts_the_plan_says_so():
    record = PartsRecord((), (TriedVariant("as it is", 226 * MIB, 0.79),), 120 * MIB)
    text = plan_text(samples.plan(samples.program(parts=record)))
    assert "No region was found that may run in parts." in text
    assert "No plan with parts" not in text
    assert "left out" not in text
