"""A comparison says where program order took another time than predicted."""

import pytest

from neaptide.report.comparison import cost_notes
from neaptide.report.model import ComparisonRow


def rows(predicted, took):
    return [
        ComparisonRow(name="eager", step_cpu_seconds=9.0),
        ComparisonRow(name="baseline", predicted_step_seconds=predicted, step_cpu_seconds=took),
    ]


@pytest.mark.parametrize(("predicted", "took"), [(0.507, 0.437), (0.25, 0.4)])
def test_a_prediction_that_is_far_off_is_told_with_what_helps(predicted, took):
    (line,) = cost_notes(rows(predicted, took))
    assert "NEAPTIDE_CACHE_DIR" in line
    assert f"{predicted * 1e3:.0f} ms" in line
    assert f"{took * 1e3:.0f} ms" in line


@pytest.mark.parametrize(
    ("predicted", "took"),
    [(0.44, 0.437), (0.001, 0.002), (None, 0.4), (0.4, None)],
    ids=["near", "guards", "not predicted", "not run"],
)
def test_nothing_is_said_where_it_is_near_or_unknown(predicted, took):
    assert not cost_notes(rows(predicted, took))


def test_a_comparison_without_program_order_says_nothing():
    assert not cost_notes(rows(1.0, 2.0)[:1])
