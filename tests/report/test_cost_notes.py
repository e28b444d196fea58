"""A comparison says where program order took another time than predicted."""

import pytest

from neaptide.report.comparison import cost_notes
from neaptide.report.model import ComparisonRow
from together import together


def rows(predicted, took, wall=None):
    return [
        ComparisonRow(name="eager", step_cpu_seconds=9.0),
        ComparisonRow(
            name="baseline", predicted_step_seconds=predicted, step_cpu_seconds=took, step_seconds=wall
        ),
    ]


@pytest.mark.parametrize(("predicted", "took"), [(0.507, 0.437), (0.25, 0.4)])
def test_a_prediction_that_is_far_off_is_told_with_what_helps(predicted, took):
    (line,) = cost_notes(rows(predicted, took))
    assert "neaptide profile TARGET --refresh" in line
    assert f"{predicted * 1e3:.0f} ms" in line
    assert f"{took * 1e3:.0f} ms" in line


@together(
    ("predicted", "took"),
    [(0.44, 0.437), (0.001, 0.002), (None, 0.4), (0.4, None)],
    ids=["near", "guards", "not predicted", "not run"],
)
def test_nothing_is_said_where_it_is_near_or_unknown(predicted, took):
    assert not cost_notes(rows(predicted, took))


def test_a_comparison_without_program_order_says_nothing():
    assert not cost_notes(rows(1.0, 2.0)[:1])


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

    def again(are_too_long):
        seen.append(are_too_long)
        return 0.61

    made = rows(predicted, took) if clock == "processor" else rows(predicted, 5.0, wall=took)
    (line,) = cost_notes(made, again, clock)
    assert seen == asked
    assert ("timed again, and by what they take now it is 610 ms" in line) == bool(asked)
