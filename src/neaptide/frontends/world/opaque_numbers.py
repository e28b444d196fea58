"""Numbers of the outside world that a step may hold during a trace, but not look into."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

from neaptide.errors import CaptureError
from neaptide.frontends.source.trace_errors import location, users_line

_WHY = "it would be read once, at capture, and never again when the captured program runs"


def outside_error(what: str, next_step: str = "") -> CaptureError:
    """The error for something that is asked of the outside world by the user's line that is running now."""
    return CaptureError(
        what,
        where=location(users_line(traceback.extract_stack())),
        why=_WHY,
        next_step=next_step or "read it outside the step and pass it as an argument",
    )


def clock_error(clock: str, where: str | None) -> CaptureError:
    """The error for a time that would decide something."""
    return CaptureError(
        f"the step uses the time that {clock} gives",
        where=where,
        why=_WHY,
        next_step="measure outside the step, or pass the time as an argument",
    )


class ClockReading:
    """A time, or a difference of times. Whatever would make it decide something is refused.

    Timing a part of a step for a log that is switched off is harmless; a time that reaches a tensor, a branch, a
    text or the outside is not. It is no number, so nothing in C can take its value.
    """

    def __init__(self, clock: str, where: str | None) -> None:
        self.clock = clock
        self.where = where

    def __repr__(self) -> str:
        raise self.refuse()

    def __reduce_ex__(self, _protocol: Any) -> Any:
        raise self.refuse()

    def refuse(self) -> CaptureError:
        """The error for using it, at the line that runs now."""
        return clock_error(self.clock, location(users_line(traceback.extract_stack())))

    def _with(self, other: Any) -> ClockReading:
        if isinstance(other, (ClockReading, int, float)) and not isinstance(other, bool):
            return ClockReading(self.clock, self.where)
        raise self.refuse()


class Identity(int):
    """What `id` or the default `hash` gives: good as a key and for equality, but not as a number."""

    __slots__ = ()


def _refusing(make: Callable[[Any], CaptureError]) -> Callable[..., Any]:
    def refuse(self: Any, *_args: Any) -> Any:
        raise make(self)

    return refuse


def _identity_error(_identity: Any) -> CaptureError:
    return outside_error("the step computes with the identity of an object", "use a number of your own")


def _names(words: str) -> list[str]:
    return [f"__{word}__" for word in words.split()]


_SUMS = _names("add radd sub rsub mul rmul truediv floordiv")
_OTHERS = _names("int float round trunc floor ceil abs neg lt le gt ge rtruediv rfloordiv mod rmod pow rpow")
_OTHERS += _names("divmod rdivmod and rand or ror xor rxor lshift rshift invert")
_OF_KEYS = _names("bool index str format hash eq ne complex array")

for _name in _SUMS:
    setattr(ClockReading, _name, ClockReading._with)  # noqa: SLF001
    setattr(Identity, _name, _refusing(_identity_error))
for _name in _OTHERS:
    setattr(ClockReading, _name, _refusing(ClockReading.refuse))
    setattr(Identity, _name, _refusing(_identity_error))
for _name in _OF_KEYS:
    setattr(ClockReading, _name, _refusing(ClockReading.refuse))
