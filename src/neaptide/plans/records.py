"""What a plan says of a program for one shape, as plain data. docs/reference/plan-file.md tells each field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from neaptide.errors import PlanMismatch
from neaptide.ir.loops.orders import BodyOrder
from neaptide.ir.schedule import Offload
from neaptide.outcome import Termination
from neaptide.transform.rewrite import Rewrite

# What a file may say; a number beyond a signed 64-bit one is none that was ever counted.
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0.0)]
_Factor = Annotated[float, msgspec.Meta(gt=0.0)]
_Number = Annotated[float, msgspec.Meta(ge=0.0)]

STEADY: Final = "steady"
_ROLES: Final = {STEADY: "a usual step", "first_1": "the first step", "first_2": "the second step"}

Reason = Literal["least_peak", "fastest", "none_within"]
LEAST_PEAK: Final = "least_peak"
FASTEST: Final = "fastest"
NONE_WITHIN: Final = "none_within"


def described_role(role: str) -> str:
    """Which step runs the program of a role, in words."""
    return _ROLES.get(role, role.replace("_", " "))


def role_of(index: int) -> str:
    """The role of a program by its place in a captured step."""
    return STEADY if index == 0 else f"first_{index}"


@dataclass(frozen=True, slots=True)
class BudgetRecord:
    """The budget as it was asked for; fields as in `neaptide.Budget`."""

    peak: str | Count | None = None
    latency: str | Seconds | None = None
    outside_bytes: Count = 0
    least_bytes: Count = 0  # allowed in any case, up to the baseline: those of an earlier plan
    host: str | Count | None = None
    # How many times as long the processor took, when a limit in seconds was held, as at the speed that predictions are for.
    clock_factor: _Factor = 1.0
    state_between_steps: bool = False


@dataclass(frozen=True, slots=True)
class Bounds:
    """Peaks in program order, storages alone and with workspace, and how low plans can go, with workspace."""

    peak_bytes: Count
    peak_with_workspace_bytes: Count  # the budget is held on it
    baseline_peak_bytes: Count
    baseline_peak_with_workspace_bytes: Count
    persistent_bytes: Count  # of what the caller owns, part of all of these
    lower_bound_bytes: Count  # of any schedule
    order_lower_bound_bytes: Count  # of any schedule without recomputation


@dataclass(frozen=True, slots=True)
class Predictions(Bounds):
    """What a program is predicted to use."""

    seconds: Seconds
    baseline_seconds: Seconds
    saved_bytes: Count = 0  # of the copies that an atomic program keeps, part of both peaks of the plan
    atomic_extra_bytes: Count = 0  # by how much being atomic lifts program order, before recomputation
    # Of one block that holds all that the plan makes and does not hand back; 0 when that was not planned.
    arena_bytes: Count = 0
    arena_lower_bound_bytes: Count = 0  # no layout of this schedule has a smaller arena
    random_state_bytes: Count = 0  # of states of generators, kept on the host to draw again; part of no peak
    host_bytes: Count = 0  # most bytes of storages that are on the host
    exposed_seconds: Seconds = 0.0  # part of `seconds` in which operations wait for copies


@dataclass(frozen=True, slots=True)
class Recomputation:
    """One storage that is dropped and made again."""

    storage: Count
    name: str  # of the value that created it
    nbytes: Count
    seconds: Seconds
    nodes: tuple[Count, ...]  # that run again
    before: Count  # the node before whose first execution they run; the node count for the end


@dataclass(frozen=True, slots=True)
class MovesSummary:
    """How a program differs from program order."""

    updates_moved_earlier: Count = 0  # optimizer updates that run inside the backward
    moved: tuple[str, ...] = ()  # names of what they update
    recomputations: tuple[Recomputation, ...] = ()  # in running order
    operations_moved: Count = 0  # fewest operations that, taken elsewhere, turn program order into this one


@dataclass(frozen=True, slots=True)
class AssumedBytes:
    """What was known of a program's bytes beside its graph when the predictions were made: they hold for these.

    Pairs ascend. A path is the ids of the loops around a node or storage, outermost first, then its own.
    """

    workspace: tuple[tuple[Count, Count], ...] = ()  # scratch by node; loops need what their bodies need
    storages: tuple[tuple[Count, Count], ...] = ()  # where an operation makes another size than told
    in_bodies: tuple[tuple[tuple[Count, ...], Count], ...] = ()  # scratch by path, of any trip the most
    storages_in_bodies: tuple[tuple[tuple[Count, ...], Count], ...] = ()  # as `storages`, by path


@dataclass(frozen=True, slots=True)
class CapturedGraph:
    """The graph that was captured, of a program that runs a rewritten one."""

    fingerprint: str
    node_count: Count
    rewrites: tuple[Rewrite, ...]  # each of the graph that those before it make
    # Of the rewritten graph in program order, its bodies as planned: recomputation adds to it.
    seconds: Seconds
    assumed: AssumedBytes = AssumedBytes()  # what the bytes of the baseline rest on


@dataclass(frozen=True, slots=True)
class TimedCopy:
    """One copy, in seconds from the begin of the step: asked for, begun by its engine, and done."""

    issued: Seconds
    start: Seconds
    end: Seconds


@dataclass(frozen=True, slots=True)
class StayCopies:
    """The copies of one offload on the host."""

    name: str
    nbytes: Count
    out: TimedCopy | None  # None where the storage is there when the step begins
    back: TimedCopy | None  # None where it is still there when the step ends

    @property
    def timed(self) -> tuple[TimedCopy, ...]:
        """Those that the step makes, in running order."""
        return tuple(copy for copy in (self.out, self.back) if copy is not None)


@dataclass(frozen=True, slots=True)
class CopiesRecord:
    """All copies of a program, predicted: by offload, and the spans of seconds in which operations wait for one."""

    rows: tuple[StayCopies, ...]
    waits: tuple[tuple[Seconds, Seconds], ...] = ()


@dataclass(frozen=True, slots=True)
class TriedVariant:
    """A variant of the captured graph that was planned, or priced."""

    label: str
    peak_bytes: Count  # with workspace
    seconds: Seconds


@dataclass(frozen=True, slots=True)
class PartsRecord:
    """What is known of running regions of a program in parts; nothing is decided by it."""

    regions: tuple[str, ...]  # in words, those that make most bytes in parts first
    tried: tuple[TriedVariant, ...]  # in the order of planning
    lower_bound_bytes: Count  # of any plan with parts along the axes of these regions, with workspace
    refused: tuple[str, ...] = ()  # what promised something and could not be done, each with the reason
    regions_left_out: Count = 0  # that were not looked at: those that make the fewest bytes in parts


@dataclass(frozen=True, slots=True)
class TrialRow:
    """One of the plans that were run: ratios are over the time of what ran beside, medians over the rounds."""

    planned_for: str  # the predicted limit of its search, in words
    predicted_peak_bytes: Count  # with workspace
    predicted_ratio: _Number
    measured_ratio: _Number
    measured_ratio_low: _Number  # ends of the 95 % interval of that median
    measured_ratio_high: _Number
    measured_seconds: _Number


@dataclass(frozen=True, slots=True)
class TrialsRecord:
    """A choice among plans by what they took, as a plan keeps it."""

    beside: str  # what ran in the same rounds, whose time the ratios are of
    clock: Literal["processor", "wall"]
    rounds: Count
    rows: tuple[TrialRow, ...]
    chosen: Count
    # `least_peak` of those within the limit of time; `none_within`, so the fastest; `fastest` for a limit of bytes.
    reason: Reason
    longest_ratio: _Number | None = None  # the limit on measured ratios, or the next one on seconds
    longest_seconds: _Number | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """What every entry of a plan says of its program, for one shape or for a range."""

    role: str  # `steady`, or `first_1`, ...
    name: str
    fingerprint: str  # of the planned graph
    node_count: Count
    budget_bytes: Count  # the limit on its peak with workspace, at every shape

    @property
    def captured_fingerprint(self) -> str:
        """Of the graph that a step must have for the plan to fit."""
        return self.fingerprint


@dataclass(frozen=True, slots=True)
class PlannedProgram(Entry):
    """The plan of one graph: the one that was captured, or one that follows from it."""

    sequence: tuple[Count, ...]  # node ids in running order; a repeated id is a recomputation
    strategy: str
    moves: MovesSummary
    predictions: Predictions  # the baseline is that of the captured graph in program order
    termination: Termination
    saved: tuple[Count, ...] = ()  # storages that an atomic program copies first, and puts back when it dies
    assumed: AssumedBytes = AssumedBytes()
    offloads: tuple[Offload, ...] = ()  # on the host, by positions in `sequence`
    captured: CapturedGraph | None = None  # where that is another graph
    bodies: tuple[BodyOrder, ...] = ()  # of loops; the others run in program order
    # For the reader; nothing is decided by these.
    parts: PartsRecord | None = None
    trials: TrialsRecord | None = None
    copies: CopiesRecord | None = None

    @property
    def captured_fingerprint(self) -> str:
        """Of the graph that a step must have for the plan to fit."""
        return self.fingerprint if self.captured is None else self.captured.fingerprint

    @property
    def rewrites(self) -> tuple[Rewrite, ...]:
        """How the planned graph follows from the captured one."""
        return () if self.captured is None else self.captured.rewrites

    @property
    def recomputed_from_seconds(self) -> float:
        """Of the planned graph in program order."""
        return self.predictions.baseline_seconds if self.captured is None else self.captured.seconds

    def check_fingerprint(self, fingerprint: str) -> None:
        """Make sure that the plan is for a captured graph."""
        if fingerprint != self.captured_fingerprint:
            raise PlanMismatch(
                f"the plan for {self.name or 'this program'} ({self.role}) was made for another program",
                why=f"it is for graph {self.captured_fingerprint}, this one is {fingerprint}",
                next_step="plan again for this model, shapes, dtypes and device",
            )
