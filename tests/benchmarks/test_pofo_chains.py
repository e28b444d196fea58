"""The table of chains: what it says of small ones."""

import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import pofo_chains  # noqa: E402


@pytest.fixture(scope="module")
def result():
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pofo_chains, "SHARES", (0.6,))
        patched.setattr(pofo_chains, "RATES", (12.0,))
        patched.setattr(pofo_chains, "WORK", 500)
        return pofo_chains.collect((3, 4), 1)


@pytest.mark.slow
def test_ours_is_never_slower_on_small_chains(result):
    for row in result["rows"]:
        ours, theirs = pofo_chains.added(row, "ours"), pofo_chains.added(row, "pofo")
        assert theirs is None or (ours is not None and ours <= theirs + pofo_chains.SAME)


def test_rows_become_lines(result):
    first, second = pofo_chains.lines(result["rows"])
    assert (first[0], second[0]) == ("3", "4")
    assert len(first) == len(pofo_chains.COLUMNS)
    row = {"ours": {"peak_with_workspace_bytes": 11, "seconds": 3.0}, "baseline_seconds": 2.0}
    assert pofo_chains.added({**row, "budget_bytes": 10}, "ours") is None
    assert pofo_chains.added({**row, "budget_bytes": 11}, "ours") == 0.5
