"""What is known about a call after it was run alone, and how it is kept in the cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import msgspec


@dataclass(frozen=True, slots=True)
class OutputFacts:
    """What a run returned at one output.

    Attributes:
        operand: slot of the operand whose storage it is in; None for bytes of its own.
        twin: an earlier output whose storage it shares; None for none.
    """

    nbytes: int
    operand: int | None
    twin: int | None
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OpRecord:
    """A call that was run alone.

    Attributes:
        seconds: median of a few runs, of a short call where it stands in a program; in memory that was touched before.
        workspace_bytes: most bytes allocated beyond operands and results.
        outputs: by position in the node's outputs; None for host scalars.
        failure: why it could not be run; empty when it was. The numbers mean nothing then.
        pace_s: of the processor, that the seconds are told at (`cost.call_clock`); 0 where they are told at none.
    """

    op: str
    seconds: float = 0.0
    workspace_bytes: int = 0
    outputs: tuple[OutputFacts | None, ...] = ()
    failure: str = ""
    pace_s: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self | None:
        """From plain data; None when it is none of ours, which costs a new measurement."""
        try:
            return msgspec.convert(dict(plain), cls)
        except msgspec.ValidationError:
            return None

    def at_pace(self, pace_s: float) -> Self:
        """The same with its seconds at another pace of the processor."""
        if not self.pace_s or not pace_s or self.pace_s == pace_s:
            return self
        return replace(self, seconds=self.seconds * pace_s / self.pace_s, pace_s=pace_s)

    @property
    def fresh_bytes(self) -> int:
        """Bytes of the storages that the call made, each once."""
        return sum(f.nbytes for f in self.outputs if f is not None and f.operand is None and f.twin is None)
