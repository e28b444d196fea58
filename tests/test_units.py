"""Sizes, shares and durations: what is read, what is refused and why, and how values print."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neaptide import units
from neaptide.errors import UsageError
from together import together


@together(
    ("text", "expected"),
    [
        ("20GiB", 20 * 2**30),
        ("20GB", 20 * 10**9),
        ("20 gib", 20 * 2**30),
        ("1.5KiB", 1536),
        ("4096", 4096),
        ("1e3", 1000),
        ("0", 0),
        (".5MiB", 2**19),
        ("0.3KB", 300),
        ("1.0001KB", 1000),
        (7, 7),
        ("2TiB", 2**41),
        ("12B", 12),
        (" +3kb ", 3000),
    ],
)
def test_size_is_read(text, expected):
    assert units.parse_size(text) == expected


@together(("text", "meant"), [("20G", 20 * 2**30), ("3k", 3072), ("1.5 M", 3 * 2**19)])
def test_bare_letter_is_binary_and_warned(text, meant):
    with pytest.warns(units.AmbiguousUnitWarning, match="iB"):
        assert units.parse_size(text) == meant


@together(
    ("text", "message"),
    [
        ("nan", "not a finite number"),
        ("infGiB", "not a finite number"),
        ("-Infinity", "not a finite number"),
        ("-5GiB", "negative"),
        (-5, "negative"),
        ("80%", "is a share"),
        ("20Gb", "bits"),
        ("20Gibb", "did you mean GiB"),
        ("20 giga", "unknown unit"),
        ("", "empty"),
        ("  ", "empty"),
        ("GiB", "not a size"),
        ("1,5GiB", "not a size"),
        ("1 2 GiB", "not a size"),
        ("0.5", "less than one byte"),
        ("1e30", "larger than any memory"),
        (10**30, "larger than any memory"),
        (True, "not a size"),
        (1.5, "not a size"),
        (None, "not a size"),
    ],
)
def test_bad_size_is_refused_with_its_own_reason(text, message):
    with pytest.raises(UsageError, match=message) as caught:
        units.parse_size(text)
    assert caught.value.next_step


@together(("text", "factor"), [("80%", 0.8), ("-30%", 0.7), ("100%", 1.0), ("-0%", 1.0), ("12.5 %", 0.125)])
def test_share_is_read(text, factor):
    assert units.parse_share(text) == factor


@together(
    ("text", "message"),
    [
        ("0.8", "no per cent sign"),
        ("20GiB", "no per cent sign"),
        ("101%", "more than 100 %"),
        ("-101%", "more than 100 %"),
        ("+10%", "more than the baseline"),
        ("0%", "leaves nothing"),
        ("-100%", "leaves nothing"),
        ("nan%", "not a finite number"),
        ("%", "not a share"),
        ("", "empty"),
        (80, "not a share"),
    ],
)
def test_bad_share_is_refused_with_its_own_reason(text, message):
    with pytest.raises(UsageError, match=message) as caught:
        units.parse_share(text)
    assert caught.value.next_step


@together(
    ("text", "seconds"),
    [
        ("1.5s", 1.5),
        ("250ms", 0.25),
        ("60 s", 60.0),
        ("2m", 120.0),
        ("2min", 120.0),
        ("1h", 3600.0),
        ("3us", 3e-6),
        (2.5, 2.5),
        (1e-7, 1e-7),
        (0, 0.0),
    ],
)
def test_duration_is_read(text, seconds):
    assert units.parse_duration(text) == seconds


@together(
    ("text", "message"),
    [
        ("60", "no unit"),
        ("-1s", "negative"),
        (-1.0, "negative"),
        (math.nan, "not a finite number"),
        (math.inf, "not a finite number"),
        ("infs", "not a finite number"),
        ("10%", "is a ratio"),
        ("10sec", "did you mean s"),
        ("1e400s", "not a finite number"),
        (True, "not a duration"),
        ("soon", "not a duration"),
    ],
)
def test_bad_duration_is_refused_with_its_own_reason(text, message):
    with pytest.raises(UsageError, match=message) as caught:
        units.parse_duration(text)
    assert caught.value.next_step


@together(("text", "factor"), [("+10%", 1.1), ("+0%", 1.0), ("+250 %", 3.5)])
def test_increase_is_read(text, factor):
    assert units.parse_increase(text) == factor


@together(
    ("text", "message"),
    [
        ("10%", "plus sign"),
        ("-10%", "plus sign"),
        ("+10", "no per cent sign"),
        ("+nan%", "not a finite number"),
    ],
)
def test_bad_increase_is_refused_with_its_own_reason(text, message):
    with pytest.raises(UsageError, match=message):
        units.parse_increase(text)


@together(
    ("n", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (12 * 1024, "12.0 KiB"),
        (2**20 - 1, "1.00 MiB"),
        (round(1.23 * 2**30), "1.23 GiB"),
        (round(31.42 * 2**30), "31.42 GiB"),
        (5000 * 2**40, "5000.00 TiB"),
        (-(2**30), "-1.00 GiB"),
    ],
)
def test_bytes_print(n, text):
    assert units.format_bytes(n) == text


@together(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (3.4e-6, "3.4 us"),
        (0.412, "412 ms"),
        (0.9996, "1.00 s"),
        (1.5, "1.50 s"),
        (59.996, "1 min 00 s"),
        (125, "2 min 05 s"),
        (3599.6, "1 h 00 min"),
        (3720, "1 h 02 min"),
        (-0.25, "-250 ms"),
    ],
)
def test_seconds_print(seconds, text):
    assert units.format_seconds(seconds) == text


@given(st.integers(min_value=0, max_value=2**62))
def test_printed_bytes_read_back_to_what_was_printed(n):
    text = units.format_bytes(n)
    value, unit = text.split()
    # Half a unit in the last printed place is all that printing may lose.
    step = {"B": 1, "KiB": 2**10 / 10, "MiB": 2**20 / 100, "GiB": 2**30 / 100, "TiB": 2**40 / 100}[unit]
    assert abs(units.parse_size(text) - n) <= step / 2 + 1
    assert float(value) < 1024 or unit == "TiB"


@given(st.text(max_size=12))
def test_any_text_is_read_or_refused_as_usage(text):
    for parse in (units.parse_share, units.parse_duration, units.parse_increase):
        try:
            value = parse(text)
        except UsageError:
            continue
        assert math.isfinite(value)
        assert value >= 0
