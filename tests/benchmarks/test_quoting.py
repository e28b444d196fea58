"""Measured tables between the markers of a page."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from quoting import quoted

PAGE = "before\n<!-- bars:begin -->\nold\n<!-- bars:end -->\nafter\n"


def test_filling_in_twice_changes_nothing_and_leaves_the_rest_alone():
    once = quoted(PAGE, "new", "bars")
    assert once == PAGE.replace("old", "new")
    assert quoted(once, "new", "bars") == once


def test_a_page_without_its_markers_is_refused():
    with pytest.raises(ValueError, match="fission:begin"):
        quoted(PAGE, "new", "fission")
