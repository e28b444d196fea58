"""The table of combinations: shares of the peak, what takes too long left out, and counts of below, equal and above."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import quote_coordinated
from coordinated import LATENCIES, PROGRAMS


def row(spec, ours, others, time_ratio=1.0):
    points = [
        {
            "program": name,
            "latency": latency,
            "peak_bytes": ours if name == "ours" else others,
            "time_ratio": ratio,
        }
        for latency in LATENCIES
        for name in PROGRAMS
        for ratio in [time_ratio if name == "transform only" else 1.0]
    ]
    return {"spec": spec, "operations": 10, "baseline_bytes": 1000, "points": points}


def test_cases_are_counted_and_what_takes_too_long_is_left_out():
    rows = [row("a@tiny", 500, 600), row("b@tiny", 700, 700), row("c@tiny", 800, 700, time_ratio=1.2)]
    text = quote_coordinated.in_markdown({"rows": rows})
    assert "Of 6 cases, ours is below the lowest of all others in 2" in text
    assert "of the peak in 2, and above it in 2" in text
    others = " | ".join(["0.600"] * len(quote_coordinated.NAIVE))
    assert f"| a@tiny | 10 | 5 % | {others} | 0.500 |" in text
    assert "| c@tiny | 10 | 10 % | 0.700 | - |" in text
    assert "* transform only: 2, 2, 0" in text
    assert "* micro-batch: 2, 2, 2" in text


def test_the_page_says_what_was_measured():
    result = json.loads(quote_coordinated.COORDINATED.read_text())
    page = quote_coordinated.PAGE.read_text()
    assert quote_coordinated.filled(page, result) == page
