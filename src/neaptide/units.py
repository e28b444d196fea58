"""Sizes, shares and durations as people write them, and as we print them back.

Sizes are integers of bytes and durations are float seconds everywhere else in the package; text appears
only here. `GiB` is 2**30 bytes and `GB` is 10**9 bytes; a bare `G` is read as `GiB` with a warning.
"""

from __future__ import annotations

import difflib
import math
import re
import warnings
from decimal import Decimal
from typing import Final

from neaptide.errors import UsageError

_BINARY: Final[dict[str, int]] = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_SIZES: Final[dict[str, int]] = {"B": 1, **_BINARY, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_SIZES_ANY_CASE: Final[dict[str, int]] = {name.lower(): value for name, value in _SIZES.items()}
_BARE: Final[dict[str, str]] = {name[0].lower(): name for name in _BINARY}
# A small b after a capital says bits. All lower case is how many people write bytes, and is read so.
_BITS: Final[frozenset[str]] = frozenset({"Kb", "Mb", "Gb", "Tb", "Kib", "Mib", "Gib", "Tib"})
_DURATIONS: Final[dict[str, Decimal]] = {
    "us": Decimal("1e-6"),
    "ms": Decimal("1e-3"),
    "s": Decimal(1),
    "m": Decimal(60),
    "min": Decimal(60),
    "h": Decimal(3600),
}
# More than any 64-bit address space holds; a number beyond it is a slip of the keyboard.
_MOST_BYTES: Final = 2**63 - 1
_NUMBER_AND_UNIT: Final = re.compile(
    r"\s*([+-]?)(\d+(?:\.\d*)?|\.\d+)((?:[eE][+-]?\d{1,3})?)\s*([^\s\d]*)\s*"
)
_NOT_FINITE: Final = re.compile(r"\s*[+-]?(nan|inf|infinity)\s*(%|[a-z]*)\s*", re.IGNORECASE)


_UPWARDS: Final = "memory is counted from zero bytes upwards"
_NO_REFERENCE: Final = "a percentage needs a reference, and here there is none"


class AmbiguousUnitWarning(UserWarning):
    """A size such as `20G`, which is read as `20GiB` and might have meant `20GB`."""


def parse_size(size: str | int) -> int:
    """Bytes of a size such as `"20GiB"`, `"1.5 MB"`, `"4096"` or the integer 4096.

    A fraction of a byte that a unit leaves over is cut off. Units are read in any letter case.
    """
    if isinstance(size, bool) or not isinstance(size, (str, int)):
        why = f"a size is text or a whole number of bytes, this is a {type(size).__name__}"
        raise UsageError(
            f"{size!r} is not a size", why=why, next_step='write "20GiB", "500MB" or a number of bytes'
        )
    if isinstance(size, int):
        return _checked_bytes(Decimal(size), str(size))
    sign, number, unit = _split(size, kind="size", example='"20GiB"')
    if sign == "-" and number != 0:
        raise _refusal(
            size,
            f"the size {size!r} is negative",
            _UPWARDS,
            "leave out the minus sign; a reduction is written in per cent, as in -30%",
        )
    if unit == "%":
        raise _refusal(
            size,
            f"{size!r} is a share, not a size",
            _NO_REFERENCE,
            'write a number of bytes with its unit, as in "20GiB"',
        )
    return _checked_bytes(number * _bytes_per_unit(unit, size), size)


def parse_share(share: str) -> float:
    """The factor that a share of a reference stands for: `"80%"` is 0.8 and `"-30%"` is 0.7."""
    sign, number, unit = _split(share, kind="share", example='"80%"')
    factor = (100 - number if sign == "-" else number) / 100
    for is_so, what, why, next_step in (
        (
            unit != "%",
            "has no per cent sign",
            "0.8 could mean 80 % and 80 could mean 80 bytes",
            'write "80%" for eighty per cent of the baseline, or "-20%" for a fifth less',
        ),
        (
            sign == "+",
            "asks for more than the baseline",
            "a share of memory can only stay or shrink",
            'write "-10%" for a tenth less; "+10%" is for a limit on time',
        ),
        (
            number > 100,
            "is more than 100 %",
            "the baseline itself is always allowed, so more than all of it limits nothing",
            "give a share between 0% and 100%, or no limit at all",
        ),
        (
            factor == 0,
            "leaves nothing",
            "no program runs in zero bytes",
            'give a share above 0 %, as in "60%" or "-40%"',
        ),
    ):
        if is_so:
            raise _refusal(share, f"the share {share!r} {what}", why, next_step)
    return float(factor)


def parse_duration(duration: str | float) -> float:
    """Seconds of a duration such as `"1.5s"`, `"250ms"`, `"2m"`, or of a number that is seconds already."""
    if isinstance(duration, bool) or not isinstance(duration, (str, int, float)):
        why = f"a duration is text or a number of seconds, this is a {type(duration).__name__}"
        raise UsageError(
            f"{duration!r} is not a duration",
            why=why,
            next_step='write "1.5s", "250ms" or a number of seconds',
        )
    text = duration if isinstance(duration, str) else f"{duration!r}s"
    sign, number, unit = _split(text, kind="duration", example='"1.5s"')
    if sign == "-" and number != 0:
        raise _refusal(
            duration,
            f"the duration {duration!r} is negative",
            "a limit on time counts from now",
            'leave out the minus sign, as in "60s"',
        )
    if unit == "":
        raise _refusal(
            duration,
            f"the duration {duration!r} has no unit",
            "seconds and milliseconds are both usual here",
            f'write "{duration}s" or "{duration}ms"',
        )
    if unit == "%":
        raise _refusal(
            duration,
            f"{duration!r} is a ratio, not a duration",
            _NO_REFERENCE,
            'write seconds, as in "60s"',
        )
    scale = _DURATIONS.get(unit.lower())
    if scale is None:
        raise _unknown_unit("duration", duration, unit, tuple(_DURATIONS))
    return _finite(number * scale, duration)


def parse_increase(increase: str) -> float:
    """The factor of a limit over a reference: `"+10%"` is 1.1."""
    sign, number, unit = _split(increase, kind="increase", example='"+10%"')
    next_step = 'write "+10%" for a tenth above the baseline'
    if unit != "%":
        what = f"the increase {increase!r} has no per cent sign"
        raise _refusal(
            increase, what, "a limit relative to the baseline is written in per cent of it", next_step
        )
    if sign != "+":
        what = f"the increase {increase!r} does not start with a plus sign"
        why = "110% and +10% are the same limit and 10% is another one, so the plus sign is asked for"
        raise _refusal(increase, what, why, next_step)
    return _finite(1 + number / 100, increase)


def format_bytes(n: float) -> str:
    """Bytes for people: `"512 B"`, `"12.0 KiB"`, `"1.23 GiB"`.

    >>> format_bytes(12 * 1024)
    '12.0 KiB'
    """
    sign, size = ("-", -n) if n < 0 else ("", n)
    if size < 1024:
        return f"{sign}{size:.0f} B"
    for unit, scale in _BINARY.items():
        # 1023.99 KiB rounds to 1024.0 KiB, which is printed as the next unit.
        decimals = 1 if unit == "KiB" else 2
        if unit == "TiB" or round(size / scale, decimals) < 1024:
            return f"{sign}{size / scale:.{decimals}f} {unit}"
    raise AssertionError("TiB ends the loop")


def exact_bytes(n: int) -> str:
    """Bytes for people, and as a number where that says less.

    >>> exact_bytes(512), exact_bytes(1025)
    ('512 B', '1.0 KiB (1025 bytes)')
    """
    shown = format_bytes(n)
    return shown if shown.endswith(" B") else f"{shown} ({n} bytes)"


def format_seconds(seconds: float) -> str:
    """Seconds for people: `"3.4 us"`, `"412 ms"`, `"1.50 s"`, `"2 min 05 s"`, `"1 h 02 min"`."""
    sign, span = ("-", -seconds) if seconds < 0 else ("", seconds)
    if span == 0:
        return "0 s"
    if span < 0.9995e-3:
        return f"{sign}{span * 1e6:.3g} us"
    if span < 0.9995:
        return f"{sign}{span * 1e3:.3g} ms"
    if span < 59.995:
        return f"{sign}{span:.2f} s"
    if round(span) < 3600:
        return f"{sign}{round(span) // 60} min {round(span) % 60:02d} s"
    minutes = round(span / 60)
    return f"{sign}{minutes // 60} h {minutes % 60:02d} min"


def _refusal(text: object, what: str, why: str, next_step: str) -> UsageError:
    """The refusal of a text for what it says."""
    return UsageError(what, where=repr(text), why=why, next_step=next_step)


def _split(text: object, *, kind: str, example: str) -> tuple[str, Decimal, str]:
    """Sign, magnitude and unit of a text; refuses what has no finite number in front."""
    write = f"write it as {example}"
    if not isinstance(text, str):
        why = f"expected text, this is a {type(text).__name__}"
        raise UsageError(f"{text!r} is not a {kind}", why=why, next_step=write)
    if not text.strip():
        raise UsageError(f"the {kind} is empty", next_step=write)
    if _NOT_FINITE.fullmatch(text):
        raise _refusal(
            text,
            f"the {kind} {text!r} is not a finite number",
            "nothing can be compared with NaN, and an infinite limit is no limit",
            f"write a finite {kind}, as in {example}, or leave it out",
        )
    match = _NUMBER_AND_UNIT.fullmatch(text)
    if match is None:
        why = "expected one number with a decimal point and one unit after it"
        raise _refusal(text, f"{text!r} is not a {kind}", why, write)
    sign, digits, exponent, unit = match.groups()
    return sign, Decimal(digits + exponent), unit


def _bytes_per_unit(unit: str, size: str) -> int:
    if unit == "":
        return 1
    if unit in _BITS:
        why = f"{unit} with a small b stands for bits"
        raise _refusal(size, f"the size {size!r} is in bits", why, f"write {unit[:-1]}B for bytes")
    if unit.lower() in _BARE:
        meant = _BARE[unit.lower()]
        warnings.warn(
            f"{size!r} is read as {size.strip()[: -len(unit)].strip()}{meant}; write the unit in full",
            AmbiguousUnitWarning,
            stacklevel=3,
        )
        return _BINARY[meant]
    scale = _SIZES_ANY_CASE.get(unit.lower())
    if scale is None:
        raise _unknown_unit("size", size, unit, tuple(_SIZES))
    return scale


def _checked_bytes(exact: Decimal, size: str) -> int:
    for is_so, what, why, next_step in (
        (exact < 0, "is negative", _UPWARDS, "give a number of bytes of at least zero"),
        (
            exact > _MOST_BYTES,
            "is larger than any memory",
            "sizes end at 2**63 - 1 bytes",
            "check the number and its unit",
        ),
        (
            0 < exact < 1,
            "is less than one byte",
            "memory comes in whole bytes",
            'add the unit that was meant, as in "0.5GiB"',
        ),
    ):
        if is_so:
            raise UsageError(f"the size {size} {what}", why=why, next_step=next_step)
    return int(exact)


def _finite(exact: Decimal, text: object) -> float:
    value = float(exact)
    if not math.isfinite(value):
        why = "it is beyond what a floating-point number holds"
        raise UsageError(
            f"{text!r} is not a finite number", why=why, next_step="check the number and its unit"
        )
    return value


def _unknown_unit(kind: str, text: object, unit: str, known: tuple[str, ...]) -> UsageError:
    by_lower = {name.lower(): name for name in known}
    close = difflib.get_close_matches(unit.lower(), by_lower, n=1, cutoff=0.5)
    hint = f"did you mean {by_lower[close[0]]}? " if close else ""
    what, why = f"the {kind} {text!r} has an unknown unit", f"{unit!r} is not a unit of a {kind}"
    return _refusal(text, what, why, f"{hint}the units are {', '.join(known)}")
