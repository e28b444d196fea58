"""How values of settings are read, whether they come as text, from a TOML file or from Python.

Each reader gives the value in the type of its setting, or raises `UsageError` (of which `InvalidBudget` is one).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from neaptide.budget import Budget
from neaptide.errors import UsageError
from neaptide.units import parse_duration, parse_size

_YES_NO: Final = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}


def read_text(value: Any) -> str:
    """Text that is not empty."""
    if isinstance(value, str) and value.strip():
        return value.strip()
    raise UsageError(f"{value!r} is no name", next_step="write some text")


def read_peak(value: Any) -> str:
    """What `Budget` takes as its peak."""
    Budget(value)
    return str(value).strip()


def read_host(value: Any) -> str:
    """What `Budget` takes as the bytes of the host."""
    Budget(host=value)
    return str(value).strip()


def read_size(value: Any) -> str:
    """Bytes with a unit."""
    parse_size(value)
    return str(value).strip()


def read_latency(value: Any) -> str:
    """What `Budget` takes as its latency."""
    text = _with_unit(value)
    Budget(None, latency=text)
    return text


def read_duration(value: Any) -> str:
    """Seconds with a unit."""
    text = _with_unit(value)
    parse_duration(text)
    return text


def _with_unit(value: Any) -> str:
    """A number in a configuration file is seconds; text has to say so."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"{value}s" if is_number else str(value).strip()


def integer_reader(lowest: int, highest: int | None = None) -> Callable[[Any], int]:
    """Reads whole numbers between two, both included."""

    def read(value: Any) -> int:
        try:
            number = int(value) if isinstance(value, str) else value
        except ValueError:
            number = None
        if isinstance(number, bool) or not isinstance(number, int) or number < lowest:
            raise UsageError(f"{value!r} is not a whole number of at least {lowest}")
        if highest is not None and number > highest:
            raise UsageError(f"{value!r} is more than {highest}")
        return number

    return read


def read_power_of_two(value: Any) -> int:
    """A whole number that is a power of two."""
    number = integer_reader(1)(value)
    if number & (number - 1):
        raise UsageError(f"{value!r} is no power of two", next_step="write 16, 64, 256 or 512")
    return number


def read_boolean(value: Any) -> bool:
    """Yes or no, as text or as itself."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in _YES_NO:
        return _YES_NO[value.strip().lower()]
    raise UsageError(f"{value!r} is neither yes nor no", next_step=f"write one of {', '.join(_YES_NO)}")


def read_verify(value: Any) -> bool | str:
    """Yes or no, or which planned calls are verified: `first`, `never`, or `every N`."""
    text = value.strip().lower() if isinstance(value, str) else ""
    if text in {"first", "never"} or _EVERY.fullmatch(text):
        return text
    try:
        return read_boolean(value)
    except UsageError as error:
        raise UsageError(
            f"{value!r} says neither whether nor when to verify",
            next_step="write first, never, every 100, yes or no",
        ) from error


def one_of_reader(*choices: str) -> Callable[[Any], str]:
    """Reads one of some words."""

    def read(value: Any) -> str:
        text = str(value).strip()
        if text not in choices:
            raise UsageError(f"{value!r} is not a choice", next_step=f"choose one of {', '.join(choices)}")
        return text

    return read


def read_texts(value: Any) -> tuple[str, ...]:
    """Several names, in a list or with commas between them."""
    if isinstance(value, str):
        value = [part for part in value.split(",") if part.strip()]
    if isinstance(value, list | tuple):
        return tuple(read_text(part) for part in value)
    raise UsageError(f"{value!r} is no list of names", next_step="write names with commas between them")


def parse_dims(texts: Sequence[str]) -> dict[str, dict[int, tuple[int, int | None]]]:
    """Dims that may vary, by argument or path: `batch:0=2..64,1=16..` is dims 0 and 1 of `batch`, the second without end.

    A text without a path goes on with that of the text before it.
    """
    found: dict[str, dict[int, tuple[int, int | None]]] = {}
    path = ""
    for part in ",".join(texts).split(","):
        named, colon, dim = part.rpartition(":")
        path = named.strip() if colon else path
        match = _DIM.fullmatch(dim.strip())
        if match is None or not path:
            raise UsageError(
                f"{part!r} names no dim that varies",
                next_step="write it like batch:0=2..64,1=16..4096: dim=smallest..largest",
            )
        axis, low, high = match.groups()
        found.setdefault(path, {})[int(axis)] = (int(low), int(high) if high else None)
    return found


def parse_shapes(texts: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """Shapes: `8x512` is size 8 of the first dim and 512 of the second."""
    for text in texts:
        if _SHAPE.fullmatch(text.strip()) is None:
            raise UsageError(f"{text!r} is no shape", next_step="write a size for each dim, such as 8x512")
    return tuple(tuple(map(int, text.split("x"))) for text in texts)


_SHAPE: Final = re.compile(r"\d+(x\d+)*")
_EVERY: Final = re.compile(r"every [1-9]\d*")
_DIM: Final = re.compile(r"(\d+)\s*=\s*(\d+)\s*\.\.\s*(\d*)")
