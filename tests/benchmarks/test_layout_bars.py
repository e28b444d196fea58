"""The layout bars: what they measure, and how a section is shown."""

import json
import sys
from pathlib import Path

import pytest

FOLDER = str(Path(__file__).parents[2] / "benchmarks")


@pytest.fixture(scope="module")
def bars():
    sys.path.insert(0, FOLDER)
    try:
        import layout_bars
    finally:
        sys.path.remove(FOLDER)
    return layout_bars


@pytest.fixture(scope="module")
def cases(bars):
    return bars.layout_cases


def test_every_case_names_a_function(bars, cases, tmp_path):
    (tmp_path / "A.csv").write_text("")
    (tmp_path / "net.json").write_text("")
    for section in bars.SECTIONS:
        found = bars.cases(section, tmp_path, tmp_path)
        assert found
        assert {case[0] for case in found} <= cases.KINDS.keys()
    assert bars.cases("challenging", None, None) == []
    assert ("captured", "gpt2@small", "inference") in bars.cases("networks", None, None)


def test_section_shows_reasons_failures_and_missed_bars(bars):
    row = {
        "case": "A",
        "buffers": 20_000,
        "live_bytes": 2**20,
        "arena_bytes": 2**20 + 512,
        "best_rule_bytes": 2**21,
        "certificate": "bound",
        "seconds_to_one_percent": None,
        "cpu_seconds": 61.0,
        "met": {"under 60 s": False, "within 1 % of live bytes": True},
    }
    text = bars.show("large", [row, {"case": "B", "failure": "it died"}])
    assert "| under 60 s | 0 of 1 | A |" in text
    assert "| within 1 % of live bytes | 1 of 1 | - |" in text
    assert "B failed: it died" in text
    assert "0.05%" in text
    assert "no cases" in bars.show("large", [])


def test_lifetimes_of_a_recorded_graph(cases, tmp_path, monkeypatch):
    def node(number, elements, *args):
        return {"id": number, "args": list(args), "out_elems": elements}

    nodes = [node(0, 100), node(1, 100, 0), node(2, 1, 1), node(3, 300, 1, 2)]
    (tmp_path / "net.json").write_text(json.dumps(nodes))
    seen = []
    monkeypatch.setattr(cases, "_network", lambda problem, *_: seen.append(problem) or {})
    cases.recorded_graph(str(tmp_path / "net.json"), repeats=1, time_limit_s=1.0)
    rows = [(buffer.name, buffer.start, buffer.end, buffer.nbytes) for buffer in seen[0].buffers]
    assert rows == [("n1", 1, 4, 512), ("n2", 2, 4, 512), ("n3", 3, 4, 1536)]


def test_seconds_up_to_the_method_that_was_good_enough(cases):
    methods = {
        "first": {"arena_bytes": None, "solve_seconds": 1.0},
        "second": {"arena_bytes": 200, "solve_seconds": 2.0},
        "third": {"arena_bytes": 101, "solve_seconds": 4.0},
    }
    assert cases._seconds_to(methods, 101) == 7.0
    assert cases._seconds_to(methods, 250) == 3.0
    assert cases._seconds_to(methods, 100) is None
