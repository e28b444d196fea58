"""The table of measured bars on the front page."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "quote_bars.py"


@pytest.fixture
def quote_bars():
    spec = importlib.util.spec_from_file_location("quote_bars", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


RESULT = {
    "made": "2026-01-02T03:04:05+00:00",
    "machine": {"cpu": "a processor", "threads": 1},
    "versions": {"python": "3.11", "transformers": None},
    "rows": [
        {"name": "peak", "target": "exact", "measured": "5 of 5", "met": True},
        {"name": "time", "target": "at most 1.05", "measured": "1.2 | 1.3", "met": False},
    ],
}


def test_a_bar_that_is_not_met_stands_out_and_the_machine_is_named(quote_bars):
    text = quote_bars.table(RESULT)
    assert "| peak | exact | 5 of 5 | yes |" in text
    assert "| time | at most 1.05 | 1.2 \\| 1.3 | **no** |" in text
    assert text.endswith("Measured 2026-01-02 on a processor, 1 thread; python 3.11.")


def test_filling_in_twice_changes_nothing_and_leaves_the_rest_alone(quote_bars):
    page = f"before\n{quote_bars.BEGIN}\nold\n{quote_bars.END}\nafter\n"
    once = quote_bars.quoted(page, "new")
    assert once == f"before\n{quote_bars.BEGIN}\nnew\n{quote_bars.END}\nafter\n"
    assert quote_bars.quoted(once, "new") == once


def test_a_page_without_its_markers_is_refused(quote_bars):
    with pytest.raises(ValueError, match="bars:begin"):
        quote_bars.quoted("no markers", "new")


def test_the_front_page_has_its_markers(quote_bars):
    quote_bars.quoted(quote_bars.README.read_text(encoding="utf-8"), "new")


def test_check_tells_whether_the_page_is_up_to_date(quote_bars, tmp_path, monkeypatch):
    bars, page = tmp_path / "bars.json", tmp_path / "page.md"
    bars.write_text(json.dumps(RESULT))
    page.write_text(f"{quote_bars.BEGIN}\n{quote_bars.END}\n")

    def ends_with(*arguments):
        monkeypatch.setattr(
            sys, "argv", ["quote_bars.py", "--bars", str(bars), "--page", str(page), *arguments]
        )
        return quote_bars.main()

    assert ends_with("--check") == 1
    assert ends_with() == 0
    assert ends_with("--check") == 0
