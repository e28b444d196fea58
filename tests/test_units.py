"""Sizes, shares and durations: what is read, what is refused and why, and how values print."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neaptide import units
from neaptide.errors import UsageError
from neaptide.units import parse_duration, parse_increase, parse_share, parse_size
from support.together import together

READ = {
    parse_size: [
        *(("20GiB", 20 * 2**30), ("20GB", 20 * 10**9), ("20 gib", 20 * 2**30), ("1.5KiB", 1536)),
        *(("4096", 4096), ("1e3", 1000), ("0", 0), (".5MiB", 2**19), ("0.3KB", 300), ("1.0001KB", 1000)),
        *((7, 7), ("2TiB", 2**41), ("12B", 12), (" +3kb ", 3000)),
    ],
    parse_share: [("80%", 0.8), ("-30%", 0.7), ("100%", 1.0), ("-0%", 1.0), ("12.5 %", 0.125)],
    parse_duration: [
        *(("1.5s", 1.5), ("250ms", 0.25), ("60 s", 60.0), ("2m", 120.0), ("2min", 120.0), ("1h", 3600.0)),
        *(("3us", 3e-6), (2.5, 2.5), (1e-7, 1e-7), (0, 0.0)),
    ],
    parse_increase: [("+10%", 1.1), ("+0%", 1.0), ("+250 %", 3.5)],
    units.format_bytes: [
        *((0, "0 B"), (1023, "1023 B"), (12 * 1024, "12.0 KiB"), (2**20 - 1, "1.00 MiB")),
        *((round(1.23 * 2**30), "1.23 GiB"), (round(31.42 * 2**30), "31.42 GiB")),
        *((5000 * 2**40, "5000.00 TiB"), (-(2**30), "-1.00 GiB")),
    ],
    units.format_seconds: [
        *((0, "0 s"), (3.4e-6, "3.4 us"), (0.412, "412 ms"), (0.9996, "1.00 s"), (1.5, "1.50 s")),
        *((59.996, "1 min 00 s"), (125, "2 min 05 s"), (3599.6, "1 h 00 min"), (3720, "1 h 02 min")),
        (-0.25, "-250 ms"),
    ],
}
REFUSED = {
    parse_size: {
        "not a finite number": ("nan", "infGiB", "-Infinity"),
        "negative": ("-5GiB", -5),
        "is a share": ("80%",),
        "bits": ("20Gb",),
        "did you mean GiB": ("20Gibb",),
        "unknown unit": ("20 giga",),
        "empty": ("", "  "),
        "not a size": ("GiB", "1,5GiB", "1 2 GiB", True, 1.5, None),
        "less than one byte": ("0.5",),
        "larger than any memory": ("1e30", 10**30),
    },
    parse_share: {
        "no per cent sign": ("0.8", "20GiB"),
        "more than 100 %": ("101%", "-101%"),
        "more than the baseline": ("+10%",),
        "leaves nothing": ("0%", "-100%"),
        "not a finite number": ("nan%",),
        "not a share": ("%", 80),
        "empty": ("",),
    },
    parse_duration: {
        "no unit": ("60",),
        "negative": ("-1s", -1.0),
        "not a finite number": (math.nan, math.inf, "infs", "1e400s"),
        "is a ratio": ("10%",),
        "did you mean s": ("10sec",),
        "not a duration": (True, "soon"),
    },
    parse_increase: {
        "plus sign": ("10%", "-10%"),
        "no per cent sign": ("+10",),
        "not a finite number": ("+nan%",),
    },
}


@together(
    ("function", "given", "made"),
    [(function, one, made) for function, cases in READ.items() for one, made in cases],
)
def test_what_is_read_and_printed(function, given, made):
    assert function(given) == made


@together(("text", "meant"), [("20G", 20 * 2**30), ("3k", 3072), ("1.5 M", 3 * 2**19)])
def test_bare_letter_is_binary_and_warned(text, meant):
    with pytest.warns(units.AmbiguousUnitWarning, match="iB"):
        assert parse_size(text) == meant


@together(
    ("function", "text", "message"),
    [
        (function, text, message)
        for function, reasons in REFUSED.items()
        for message, texts in reasons.items()
        for text in texts
    ],
)
def test_what_is_refused_has_its_own_reason(function, text, message):
    with pytest.raises(UsageError, match=message) as caught:
        function(text)
    assert caught.value.next_step


@given(st.integers(min_value=0, max_value=2**62))
def test_printed_bytes_read_back_to_what_was_printed(n):
    text = units.format_bytes(n)
    value, unit = text.split()
    # Half a unit in the last printed place is all that printing may lose.
    step = {"B": 1, "KiB": 2**10 / 10, "MiB": 2**20 / 100, "GiB": 2**30 / 100, "TiB": 2**40 / 100}[unit]
    assert abs(parse_size(text) - n) <= step / 2 + 1
    assert float(value) < 1024 or unit == "TiB"


@given(st.text(max_size=12))
def test_any_text_is_read_or_refused_as_usage(text):
    for parse in (parse_share, parse_duration, parse_increase):
        try:
            value = parse(text)
        except UsageError:
            continue
        assert math.isfinite(value)
        assert value >= 0
