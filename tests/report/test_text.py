"""What reports say in words and cells."""

import math
from dataclasses import replace
from pathlib import Path

from neaptide.outcome import Termination, TerminationReason
from neaptide.plans import (
    BudgetRecord,
    MovesSummary,
    PartsRecord,
    TriedVariant,
    range_peaks,
)
from neaptide.report import cells
from neaptide.report.comparison import cost_notes
from neaptide.report.comparison_text import comparison_document, is_within_budget
from neaptide.report.document import Table, document
from neaptide.report.model import ComparisonRow, ShapePeak, ShapeRanges
from neaptide.report.plan_text import plan_text
from neaptide.report.profile_text import profile_document
from neaptide.report.run_text import arena_lines, run_document
from neaptide.runtime.arena.plan import ArenaReport, OutsideStorage
from neaptide.symbolic.dims import Dim
from report import samples
from support.together import together

MIB = samples.MIB


def profile_text(**changes):
    return profile_document(samples.profile(**changes)).plain()


def comparison_text(**changes):
    return comparison_document(samples.comparison(**changes)).plain()


def run_text(**changes):
    return run_document(samples.run(**changes)).plain()


def one(**changes):
    """The text of a plan of one program."""
    return plan_text(samples.plan(samples.program(**changes)))


def test_golden_reports(golden):
    golden("report/profile.txt", profile_text() + "\n")
    on_device = {"device": "rtx4090", "capacity_bytes": 360 * MIB, "fits": False, "over_bytes": 20 * MIB}
    golden("report/profile_device.txt", profile_text(**on_device, workspace_is_known=False) + "\n")
    golden("report/comparison.txt", comparison_text() + "\n")
    golden("report/plan.txt", plan_text(samples.plan(), path="best.json") + "\n")
    golden("report/run.txt", run_text() + "\n")


RANGES = ShapeRanges(
    ("B in 2..64", "T in 16.."),
    ("B == 2*T",),
    ("B ends there: model.py:3",),
    (ShapePeak({"B": 2, "T": 16}, 1 << 20), ShapePeak({"B": 64, "T": 16}, 1 << 24)),
)


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
        ({"unknown_ops": ("mylib.op",)}, ["left alone:\n  - mylib.op"]),
        (
            {"ranges": RANGES},
            ["  - B in 2..64", "  - where B == 2*T", "model.py:3", "B = 64, T = 16", "16.00 MiB"],
        ),
    ],
)
def test_profile_says(changes, expected):
    text = profile_text(**changes)
    for part in expected:
        assert part in text
    assert "live at the peak" not in profile_text(live_at_peak=())


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
            ["plan is 2.00 MiB above it", "predicted at 226.00 MiB; no plan holds what was measured"],
        ),
        ({"budget_bytes": None}, True, ["Budget: none given; plans may use", "no budget asks for it"]),
        ({"rows": (samples.EAGER,), "budget_bytes": None}, True, ["none given, so nothing was planned."]),
        ({"bounds_are_of_rewritten": True}, True, ["for any plan of the rewritten graph"]),
        ({"is_for_bytes": True}, True, ["nothing lower was found within the time"]),
    ],
)
def test_comparison_says(changes, within, expected):
    assert is_within_budget(samples.comparison(**changes)) is within
    for part in expected:
        assert part in comparison_text(**changes)
    assert "of the rewritten graph" not in comparison_text()
    assert "the search was for time" not in comparison_text(is_for_bytes=True)


def test_a_comparison_that_was_not_run_shows_predictions_only():
    nothing = dict.fromkeys(
        (
            *("measured_peak_bytes", "measured_allocator_peak_bytes", "step_seconds"),
            *("step_cpu_seconds", "loss", "bitwise_equal"),
        )
    )
    rows = (samples.BASELINE, samples.planned())
    rows = tuple(replace(row, **nothing, max_abs_diff={}, repeats=0) for row in rows)
    text = comparison_text(rows=rows, device="rtx4090")
    assert text.startswith("zoo:gpt2@small on rtx4090: predicted, nothing was run\n")
    assert text.endswith("Next: neaptide plan zoo:gpt2@small --peak 228MiB --device rtx4090 -o plan.json")
    assert "peak, predicted" in text


def test_numbers_for_a_device_of_another_kind_are_called_predicted_only():
    warning = (
        "Predicted only: captured with CPU kernels (attention takes the CPU path); rtx4090 may run others."
    )
    assert warning in profile_text(device="rtx4090", captured_on="cpu")
    assert warning in plan_text(samples.plan(device="rtx4090", captured_on="cpu"))
    for device, captured_on in (("rtx4090", "cuda"), ("rtx4090", ""), ("this-machine", "cpu")):
        assert "Predicted only" not in plan_text(samples.plan(device=device, captured_on=captured_on))


STILL = samples.program(
    moves=MovesSummary(),
    predictions=samples.predictions(lower_bound_bytes=226 * MIB),
    termination=Termination(TerminationReason.OPTIMAL),
)


@together(
    ("plan", "expected", "never"),
    [
        (
            samples.plan(budget=BudgetRecord()),
            [
                "Budget: none given; no higher than the baseline.",
                "Why not lower: no budget asks for it; no plan goes below 120.00 MiB.",
            ],
            [],
        ),
        (
            samples.plan(samples.program(budget_bytes=200 * MIB)),
            ["NOT held: 26.00 MiB above it"],
            [],
        ),
        (
            samples.plan(budget=BudgetRecord("60%", "700ms")),
            ["Latency: limit 700 ms, predicted 790 ms; NOT held."],
            [],
        ),
        (
            samples.plan(STILL, budget=BudgetRecord(), name="", device=""),
            [
                *("Recomputed: nothing.", "Why not lower: the lower bound is reached."),
                *("the search ended optimal. ", "Budget: none given, so nothing is recomputed"),
                "Next: save the plan",
            ],
            ["--plan", "other programs"],
        ),
        (replace(samples.plan(), programs=()), ["no programs"], []),
    ],
)
def test_plan_says(plan, expected, never):
    text = plan_text(plan)
    for part in expected:
        assert part in text
    for part in never:
        assert part not in text


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
    assert expected in run_text(**changes)


def test_a_plan_says_which_regions_may_run_in_parts_and_what_was_planned():
    record = PartsRecord(
        ("forward and backward along dim 0 of batch_0: 8 long, 300 MiB made in parts",),
        (
            TriedVariant("as it is", 226 * MIB, 0.79),
            TriedVariant("what lies after h3 in 2 parts", 90 * MIB, 0.8),
        ),
        95 * MIB,
        tuple(f"forward and backward along dim {dim} of tokens: it is refused" for dim in range(8)),
    )
    text = one(parts=record)
    assert "along dim 5 of tokens: it is refused\n  - 2 more" in text
    assert "Regions that may run in parts:\n  - forward and backward along dim 0" in text
    assert "No plan with parts along their axes goes below 95.00 MiB, 25 % of the baseline." in text
    assert "what lies after h3 in 2 parts | " in text
    told = one(parts=replace(record, regions_left_out=3))
    assert "Not looked at: 3 more regions with fewer bytes made in parts." in told
    text = one(parts=PartsRecord((), (TriedVariant("as it is", 226 * MIB, 0.79),), 120 * MIB))
    assert "No region was found that may run in parts." in text


# -- an arena

ARENA = ArenaReport(
    arena_bytes=10 * MIB,
    live_bytes=9 * MIB,
    certificate="bound",
    written=12,
    copied=2,
    copied_bytes=3 * MIB,
    copy_seconds=0.001,
    step_seconds=0.1,
    outside=(
        OutsideStorage("aten.convolution.default", "c", MIB, 0, 3, "no overload"),
        OutsideStorage("aten.convolution.default", "d", 2 * MIB, 2, 4, "no overload"),
        OutsideStorage("aten.convolution.default", "e", 2 * MIB, 4, 5, "no overload"),
        OutsideStorage("aten.sum.default", "loss", 4, 4, 5, "it is handed back"),
    ),
    outside_peak_bytes=3 * MIB,
    persistent_bytes=MIB,
    peak_bytes=14 * MIB,
    peak_with_workspace_bytes=15 * MIB,
    plain_peak_bytes=13 * MIB,
    predicted_reserved_bytes=2 << 20,
)


def test_an_arena_is_told_with_its_bytes():
    assert arena_lines(ARENA) == (
        "one block of 10.00 MiB for 9.00 MiB live (bound); 3.00 MiB outside at most, 1.00 MiB more with workspace",
        "predicted reserved: 2.00 MiB, by PyTorch's caching allocator for the same results (simulated)",
        "12 results written in place, 2 results copied in, 3.00 MiB a step (predicted 1 ms, 1.0% of the step)",
        "outside: aten.convolution.default, 3 storages, 3.00 MiB at their peak: no overload",
        "outside: aten.sum.default, 1 storage, 4 B at their peak: it is handed back",
    )
    many = tuple(OutsideStorage(f"aten.op{k}.default", "v", k + 1, 0, 1, "why") for k in range(9))
    lines = arena_lines(replace(ARENA, outside=many))
    assert "aten.op8" in lines[3]
    assert lines[-1] == "outside: 3 more kinds of storages"


# -- whether program order took another time than predicted


def rows(predicted, took, wall=None):
    return [
        ComparisonRow(name="eager", step_cpu_seconds=9.0),
        ComparisonRow(
            name="baseline", predicted_step_seconds=predicted, step_cpu_seconds=took, step_seconds=wall
        ),
    ]


@together(
    ("predicted", "took", "clock", "asked"),
    [
        (0.9, 0.6, "processor", [True]),
        (0.4, 0.6, "processor", [False]),
        (0.7, 0.6, "processor", []),  # told, and no more
        (0.9, 0.6, "wall", [True]),
        (0.4, 0.6, "wall", []),  # other programs may have run
    ],
)
def test_the_dear_operations_are_timed_again_where_program_order_is_far_off(predicted, took, clock, asked):
    seen = []
    made = rows(predicted, took) if clock == "processor" else rows(predicted, 5.0, wall=took)
    (line,) = cost_notes(made, lambda are_too_long: seen.append(are_too_long) or 0.61, clock)
    assert seen == asked
    assert ("timed again, and by what they take now it is 610 ms" in line) == bool(asked)


# -- cells, tables and documents


@together(
    ("made", "expected"),
    [
        (cells.byte_cell(3 * 2**29), "1.50 GiB"),
        (cells.seconds_cell(0.412), "412 ms"),
        (cells.ratio_cell(3.0, 2.0), "1.50x"),
        (cells.ratio_cell(3.0, 0), "-"),
        (cells.difference_cell(1.234e-7), "1.2e-07"),
        (cells.difference_cell(math.nan), "nan"),
        (cells.count_cell(2, 2048), "2 (2.0 KiB)"),
        (cells.percent(1, 300), "0.3 %"),
        (
            cells.shares({"optimizer_state": 1, "activation": 3, "output": 0}),
            "75 % activation, 25 % optimizer state",
        ),
        (cells.place("/v/lib/site-packages/torch/nn/f.py:3"), "torch/nn/f.py:3"),
        (cells.place(str(Path.cwd() / "a" / "b.py") + ":3"), str(Path("a") / "b.py") + ":3"),
        (cells.place("/elsewhere/b.py:3"), "/elsewhere/b.py:3"),
        (cells.bullets("Notes", ("a", "b")), "Notes:\n  - a\n  - b"),
        (cells.size_argument(24 * 2**30, at_least=False), "24GiB"),
        (cells.size_argument(23 * 2**30 + 2**29, at_least=True), "23.5GiB"),
        (cells.size_argument(2**20 + 1, at_least=True), "1.01MiB"),
        (document("a", None, "", Table(("x",), ()), "b").plain(), "a\n\n| x   |\n|-----|\n\nb"),
        (
            Table(
                ("name", "bytes", "kind"), (("a", "1", "x"), ("bcdef", "1024", "yz")), left=frozenset({2})
            ).plain(),
            "| name  | bytes | kind |\n|-------|------:|------|\n| a     |     1 | x    |\n| bcdef |  1024 | yz   |",
        ),
    ],
)
def test_cells(made, expected):
    assert made == expected


# -- peaks over ranges

ROWS, TOKENS = Dim("rows", 2, 6), Dim("tokens", 4, 104)


def peak(shape):
    return 1000 * shape["rows"] + shape["tokens"]


def test_curves_run_along_the_longest_range():
    found = range_peaks((ROWS, TOKENS), lambda _: True, peak, lambda shape: peak(shape) - 1, 7)
    assert {curve.dim for curve in found.curves} == {"tokens"}
    assert [curve.beside for curve in found.curves] == [{"rows": n} for n in range(2, 7)]
    assert found.limit_bytes == 7
    for curve in found.curves:
        assert (curve.sizes[0], curve.sizes[-1]) == (4, 104)
        shapes = [{**curve.beside, "tokens": size} for size in curve.sizes]
        assert curve.baseline_peak_bytes == tuple(map(peak, shapes))
        assert curve.planned_peak_bytes == tuple(peak(shape) - 1 for shape in shapes)
    (curve,) = range_peaks((Dim("n", 3, 4),), lambda _: True, lambda shape: shape["n"]).curves
    assert (curve.sizes, curve.baseline_peak_bytes, curve.beside, curve.label()) == ((3, 4), (3, 4), {}, "")
