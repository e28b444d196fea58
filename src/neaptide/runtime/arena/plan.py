"""What lies in the arena of a program and what does not, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from neaptide.errors import UsageError
from neaptide.lower.places import Places
from neaptide.outcome import Limits

Copies = Literal["cheap", "all", "none"]
COPIES: tuple[Copies, ...] = ("cheap", "all", "none")


@dataclass(frozen=True, slots=True)
class ArenaOptions:
    """How an arena is made.

    Attributes:
        copies: what becomes of results that an operation does not write where it is told: `cheap` copies those that
            live longest into their places, as long as the copies stay within `copy_share` and the peak does not
            rise; `all` copies whatever has a place, `none` leaves all of them outside.
        copy_share: seconds of copies as a share of the step's.
        in_place: let results lie on top of operands that are needed no longer, where the op table says that it can
            be done.
        limits: of the search for the layout. Where sizes vary, of the layout that those of all shapes begin with.
        shape_limits: where sizes vary, of the search for the layout of a shape that is new. It begins with a layout that takes
            no search, so there is one whatever the limits.
        whole_range: where sizes vary, make the block as large as shapes on the way to the largest need from the first usual
            step on, so that it hardly grows later. False: as large as the shapes met so far need.

    Raises:
        UsageError: an unknown choice or a share below zero.
    """

    copies: Copies = "cheap"
    copy_share: float = 0.02
    in_place: bool = False
    limits: Limits = field(default_factory=lambda: Limits(time_s=10.0))
    shape_limits: Limits = field(default_factory=lambda: Limits(time_s=0.1, work=20_000))
    whole_range: bool = False

    def __post_init__(self) -> None:
        if self.copies not in COPIES:
            raise UsageError(
                f"copies={self.copies!r} is not a choice",
                next_step=f"choose one of {', '.join(map(repr, COPIES))}",
            )
        if not self.copy_share >= 0:
            raise UsageError(f"copy_share={self.copy_share!r} is not a share of the step's time")


def arena_options(arena: bool | ArenaOptions) -> ArenaOptions | None:
    """How an arena is made, as users ask for it; None: not at all."""
    if isinstance(arena, ArenaOptions):
        return arena
    return ArenaOptions() if arena else None


@dataclass(frozen=True, slots=True)
class OutsideStorage:
    """A storage instance that is not in the arena.

    Attributes:
        start: position of the step that makes it.
        end: one past the last step with a name for it.
    """

    op: str
    name: str
    nbytes: int
    start: int
    end: int
    reason: str


@dataclass(frozen=True, slots=True)
class ArenaReport:
    """What an arena holds and what a step inside it is predicted to use.

    Attributes:
        arena_bytes: of the block.
        live_bytes: most bytes that are in use in it at one step; no layout is smaller.
        certificate: what is proved about the layout.
        written: results that their operations write straight to their places.
        copied: results that are copied there, in each step.
        copied_bytes: of these, in each step.
        copy_seconds: that the copies are predicted to take.
        step_seconds: of the whole step without them.
        outside: storages that are not in it, in order of creation.
        outside_peak_bytes: most bytes of those at one step, with the sources of copies.
        persistent_bytes: of what the caller owns.
        peak_bytes: predicted: persistent, arena and the peak outside.
        peak_with_workspace_bytes: the same with what operations allocate inside themselves.
        plain_peak_bytes: of the same schedule without an arena, storages alone.
        predicted_reserved_bytes: what PyTorch's CUDA caching allocator would reserve for all that the schedule makes,
            in the arena or not, by simulation; not measured.
    """

    arena_bytes: int
    live_bytes: int
    certificate: str
    written: int
    copied: int
    copied_bytes: int
    copy_seconds: float
    step_seconds: float
    outside: tuple[OutsideStorage, ...]
    outside_peak_bytes: int
    persistent_bytes: int
    peak_bytes: int
    peak_with_workspace_bytes: int
    plain_peak_bytes: int
    predicted_reserved_bytes: int


@dataclass(frozen=True, slots=True)
class ArenaPlan:
    """The arena of one program."""

    places: Places
    device: str
    alignment: int
    report: ArenaReport


@dataclass(frozen=True, slots=True)
class ArenaOnTheWay:
    """Predicted bytes at one of the shapes of a range.

    Attributes:
        peak_with_workspace_bytes: in a block of just these bytes.
        plain_peak_with_workspace_bytes: of what is decided for the shape, without an arena.
    """

    shape: Mapping[str, int]
    arena_bytes: int
    live_bytes: int
    outside_peak_bytes: int
    peak_with_workspace_bytes: int
    plain_peak_with_workspace_bytes: int
