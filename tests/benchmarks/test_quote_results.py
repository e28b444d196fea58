"""The page of results: what stands in its tables, and that it says what the JSONs say."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import quote_results
from coordinated import LATENCIES, OURS, PROGRAMS

MACHINE = {"made": "2026-01-02T03:04", "machine": {"cpu": "a processor", "threads": 1}}


def row(spec, ours, others, time_ratio=1.0):
    points = [
        {
            "program": name,
            "latency": latency,
            "peak_bytes": ours if name == OURS else others,
            "time_ratio": time_ratio if name == "transform only" else 1.0,
        }
        for latency in LATENCIES
        for name in PROGRAMS
    ]
    return {"spec": spec, "operations": 10, "baseline_bytes": 1000, "points": points}


def test_cases_are_counted_and_what_takes_too_long_is_left_out():
    rows = [row("a@tiny", 500, 600), row("b@tiny", 700, 700), row("c@tiny", 800, 700, time_ratio=1.2)]
    text = quote_results.coordinated(MACHINE | {"rows": rows})
    assert "| the lowest of all these | 2 | 2 | 2 |" in text
    assert "| transform only | 2 | 2 | 0 |" in text
    assert "| micro-batch | 2 | 2 | 2 |" in text
    assert "Above: c@tiny at +5 % (0.800, not 0.700), c@tiny at +10 % (0.800, not 0.700)." in text


@pytest.mark.parametrize(
    ("ours", "ratio", "shown"),
    [(30, 1.0, "0.300 (0.310)"), (32, 1.0, "**0.320 (0.310)**"), (10, 1.2, "**too slow (0.310)**")],
)
def test_a_run_that_is_lost_is_bold(ours, ratio, shown):
    def ran(name, peak, ratio, **more):
        measured = {"measured_allocator_peak_bytes": peak, "peak_share": peak / 100, "cpu_ratio": ratio}
        return {"program": name} | measured | more

    programs = [
        ran("eager", 100, 1.0),
        ran("a", 31, 1.0),
        ran("b", ours, ratio, kind="ours", chosen_for=[10]),
    ]
    settings = {"tolerance_of_times": 0.03, "missing": {}}
    made = {"spec": "mlp@tiny", "latencies": [10], "programs": programs, "time_limit_s": 45.0}
    text = quote_results.fission(MACHINE | {"rows": [made], "settings": settings})
    assert f"| mlp@tiny | {shown} |" in text
    assert "searches of 45 s; times may be 3% above" in text


def test_the_page_says_what_was_measured():
    page = quote_results.PAGE.read_text(encoding="utf-8")
    assert quote_results.filled(page) == page
