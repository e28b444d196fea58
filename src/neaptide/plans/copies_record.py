"""When copies to the host and back run beside the operations of a plan, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeAlias

import msgspec

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Seconds = Annotated[float, msgspec.Meta(ge=0.0)]
Span: TypeAlias = tuple[_Seconds, _Seconds]
"""Begin and end, in seconds from the begin of the step."""


@dataclass(frozen=True, slots=True)
class TimedCopy:
    """One copy, in seconds from the begin of the step.

    Attributes:
        issued: when the program asks for it.
        start: when its engine begins it, behind the copies that were asked for before.
        end: when it is done.
    """

    issued: _Seconds
    start: _Seconds
    end: _Seconds


@dataclass(frozen=True, slots=True)
class StayCopies:
    """The copies of one stay on the host.

    Attributes:
        name: of the storage.
        nbytes: of it.
        out: to the host; None where the storage is there when the step begins.
        back: from it; None where it is still there when the step ends.
    """

    name: str
    nbytes: _Count
    out: TimedCopy | None
    back: TimedCopy | None

    @property
    def timed(self) -> tuple[TimedCopy, ...]:
        """Those that the step makes, in running order."""
        return tuple(copy for copy in (self.out, self.back) if copy is not None)


@dataclass(frozen=True, slots=True)
class CopiesRecord:
    """All copies of a program, predicted.

    Attributes:
        rows: by stay, in the order of the program's stays.
        waits: in which no operation runs because a copy is waited for, in running order.
    """

    rows: tuple[StayCopies, ...]
    waits: tuple[Span, ...] = ()
