from __future__ import annotations

import math

import pytest

from neaptide.budget import Budget
from neaptide.errors import InvalidBudget
from support.together import together


@together(
    ("peak", "expected"),
    [
        *(("60%", 600), ("-30%", 700), ("100%", 1000), (250, 250), ("250", 250), ("0.5KiB", 512)),
        *(("1GiB", 1000), (None, 1000), (" 33.3% ", 333)),
    ],
)
def test_budgets_resolve_to_bytes_and_never_above_the_baseline(peak, expected):
    assert Budget(peak).resolve(1000) == expected


def test_a_share_is_of_graph_and_outside_together():
    assert Budget("50%", outside_bytes=200).resolve(1000) == 400
    assert Budget(700, outside_bytes=200).resolve(1000) == 500
    with pytest.raises(InvalidBudget, match="outside"):
        Budget(100, outside_bytes=200).resolve(1000)


@together("host", ["60%", "min", "-1GiB", -1, True, 0.5, "", "much"])
def test_bytes_on_the_host_are_a_size(host):
    with pytest.raises(InvalidBudget, match=r"host=.* is no size"):
        Budget("60%", host=host)


@together(
    "peak",
    [
        *("nan", "nan%", "-5GiB", "120%", "0%", "-100%", "+10%", "60 percent", "20GiBB", ""),
        *(0, -1, math.nan, True, 0.6),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_is_accepted(peak):
    with pytest.raises(InvalidBudget, match="60%") as caught:
        Budget(peak)
    assert repr(peak) in caught.value.what
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(("latency", "expected"), [(None, None), ("+10%", 2.2), (1.5, 1.5), ("250ms", 0.25)])
def test_latencies_resolve_to_seconds(latency, expected):
    found = Budget(None, latency=latency).resolve_latency(2.0)
    assert found == (None if expected is None else pytest.approx(expected))


@together("latency", ["10%", "-10%", "fast", -1, math.inf, math.nan, "10"])
def test_impossible_latencies_are_refused(latency):
    with pytest.raises(InvalidBudget, match="no limit on time"):
        Budget("60%", latency=latency)
