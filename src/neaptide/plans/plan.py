"""Plan: what the planner decided, as plain frozen data that is saved, reviewed as a diff, and applied elsewhere.

A plan file is JSON with a format version and a checksum over its content. Reading one never executes anything. A
checksum is no proof: what is read is judged, by itself here and beside its program by `planner.judge_plan`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from neaptide.errors import PlanError, PlanMismatch, UnreadableFile
from neaptide.ir.body_orders import BodyOrder
from neaptide.ir.schedule import HostStay
from neaptide.plans.content import check_content
from neaptide.plans.copies_record import CopiesRecord
from neaptide.plans.parts_record import PartsRecord
from neaptide.plans.plan_file import AGAIN, check_known, file_content, file_text
from neaptide.plans.shapes_record import ShapesRecord
from neaptide.plans.trials_record import TrialsRecord
from neaptide.reading import read_bytes
from neaptide.transform.rewrite import Rewrite
from neaptide.writing import write_atomic

# What a file may say; a number beyond a signed 64-bit one is none that was ever counted.
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Seconds = Annotated[float, msgspec.Meta(ge=0.0)]
_Factor = Annotated[float, msgspec.Meta(gt=0.0)]

_ROLES: Final = {"steady": "a usual step", "first_1": "the first step", "first_2": "the second step"}


def described_role(role: str) -> str:
    """Which step runs the program of a role, in words."""
    return _ROLES.get(role, role.replace("_", " "))


@dataclass(frozen=True, slots=True)
class BudgetRecord:
    """The budget as it was asked for; fields as in `neaptide.Budget`.

    `least_bytes` are allowed in any case, up to the baseline: those of an earlier plan of the same step. `pace` is how many
    times as long the processor took, when a limit in seconds was held, as at the pace of the predictions.
    """

    peak: str | _Count | None = None
    latency: str | _Seconds | None = None
    outside_bytes: _Count = 0
    least_bytes: _Count = 0
    host: str | _Count | None = None
    pace: _Factor = 1.0
    state_between_steps: bool = False


@dataclass(frozen=True, slots=True)
class Predictions:
    """What a program is predicted to use.

    Attributes:
        peak_bytes: highest bytes of storages.
        peak_with_workspace_bytes: the same with workspace; the budget is held on it.
        baseline_peak_bytes: of program order, storages alone.
        baseline_peak_with_workspace_bytes: of program order, with workspace.
        resident_bytes: of what the caller owns, part of all of these.
        lower_bound_bytes: no schedule has a lower peak with workspace.
        order_lower_bound_bytes: no schedule without recomputation has.
        seconds: of one step.
        baseline_seconds: of one step in program order.
        saved_bytes: of the copies that an atomic program keeps, part of both peaks of the plan.
        atomic_extra_bytes: by how much being atomic lifts the peak over that of program order, before anything is
            recomputed.
        arena_bytes: of one block that holds all that the plan makes and does not hand back, laid out; 0 when that
            was not planned.
        arena_lower_bound_bytes: no layout of this schedule has a smaller arena.
        random_state_bytes: of states of random generators that are kept, outside of tensors, to draw the same
            numbers again; on the host, and part of no peak.
        host_bytes: most bytes of storages that stay on the host.
        exposed_seconds: part of `seconds` in which operations wait for copies to and from the host.
    """

    peak_bytes: _Count
    peak_with_workspace_bytes: _Count
    baseline_peak_bytes: _Count
    baseline_peak_with_workspace_bytes: _Count
    resident_bytes: _Count
    lower_bound_bytes: _Count
    order_lower_bound_bytes: _Count
    seconds: _Seconds
    baseline_seconds: _Seconds
    saved_bytes: _Count = 0
    atomic_extra_bytes: _Count = 0
    arena_bytes: _Count = 0
    arena_lower_bound_bytes: _Count = 0
    random_state_bytes: _Count = 0
    host_bytes: _Count = 0
    exposed_seconds: _Seconds = 0.0


@dataclass(frozen=True, slots=True)
class Recomputation:
    """One storage that is dropped and made again.

    Attributes:
        storage: id in the graph.
        name: of the value that created it.
        nbytes: not held meanwhile.
        seconds: of running it again.
        nodes: that run again.
        before: the node directly before whose first execution they run; the node count for the end.
    """

    storage: _Count
    name: str
    nbytes: _Count
    seconds: _Seconds
    nodes: tuple[_Count, ...]
    before: _Count


@dataclass(frozen=True, slots=True)
class MovesSummary:
    """How a program differs from program order.

    Attributes:
        updates_moved_earlier: number of optimizer updates that run inside the backward.
        moved: names of what they update.
        recomputations: in running order.
        operations_moved: least number of operations that, taken elsewhere, turn program order into this order.
    """

    updates_moved_earlier: _Count = 0
    moved: tuple[str, ...] = ()
    recomputations: tuple[Recomputation, ...] = ()
    operations_moved: _Count = 0


@dataclass(frozen=True, slots=True)
class TerminationRecord:
    """Why the search ended; fields as in `outcome.Termination`."""

    reason: str
    limit: str | None = None
    detail: str = ""
    best: _Seconds | None = None
    bound: _Seconds | None = None


@dataclass(frozen=True, slots=True)
class AssumedBytes:
    """What was known of a program's bytes beside its graph when the predictions were made: they hold for these.

    Attributes:
        workspace: (node id, scratch bytes), ascending; the other nodes need none, and loops what their bodies need.
        storages: (storage id, bytes), ascending, where an operation really makes another size than its graph says.
        in_bodies: (path, scratch bytes), ascending, of nodes in the bodies of loops: ids of the loops around the node,
            outermost first, then its own. Of any trip the most.
        storages_in_bodies: (path, bytes), ascending, of storages in the bodies of loops, likewise: as `storages`.
    """

    workspace: tuple[tuple[_Count, _Count], ...] = ()
    storages: tuple[tuple[_Count, _Count], ...] = ()
    in_bodies: tuple[tuple[tuple[_Count, ...], _Count], ...] = ()
    storages_in_bodies: tuple[tuple[tuple[_Count, ...], _Count], ...] = ()


@dataclass(frozen=True, slots=True)
class CapturedGraph:
    """The graph that was captured, of a program that runs a rewritten one.

    Attributes:
        fingerprint: of the captured graph.
        node_count: of the captured graph.
        rewrites: that make of it the graph that is planned, each of the graph that those before it make.
        seconds: of one step of the rewritten graph in program order, with its bodies as they are planned: what
            recomputation outside of bodies adds to.
        assumed: what the bytes of the baseline rest on beside the captured graph.
    """

    fingerprint: str
    node_count: _Count
    rewrites: tuple[Rewrite, ...]
    seconds: _Seconds
    assumed: AssumedBytes = AssumedBytes()


@dataclass(frozen=True, slots=True)
class PlannedProgram:
    """The plan of one graph: the one that was captured, or one that follows from it.

    Attributes:
        role: which program of the step it is, such as `steady` or `first`.
        name: of the graph.
        fingerprint: of the graph that is planned; the plan fits no other.
        node_count: of that graph.
        sequence: node ids in running order; a repeated id is a recomputation.
        strategy: that found it.
        budget_bytes: the limit on its peak with workspace.
        moves: how it differs from program order.
        predictions: bytes and seconds.
        termination: why the search ended.
        saved: ids of the caller's storages that an atomic program copies first, and puts back when it dies.
        assumed: what the predicted bytes rest on beside the graph.
        stays: storages that wait on the host meanwhile, by positions in `sequence`.
        copies: when these leave and return; None where nothing waits, or nobody played it.
        captured: what was captured, where that is another graph; the numbers of the baseline are those of its program
            order.
        bodies: in what order the bodies of loops run; program order for those without one.
        parts: what a search over variants looked at; None where none was made.
        trials: the plans that were run to choose this one; None where it was chosen by predictions.
    """

    role: str
    name: str
    fingerprint: str
    node_count: _Count
    sequence: tuple[_Count, ...]
    strategy: str
    budget_bytes: _Count
    moves: MovesSummary
    predictions: Predictions
    termination: TerminationRecord
    saved: tuple[_Count, ...] = ()
    assumed: AssumedBytes = AssumedBytes()
    stays: tuple[HostStay, ...] = ()
    captured: CapturedGraph | None = None
    bodies: tuple[BodyOrder, ...] = ()
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
        """Make sure that the plan is for a captured graph.

        Raises:
            PlanMismatch: when the graph has another fingerprint.
        """
        if fingerprint != self.captured_fingerprint:
            raise PlanMismatch(
                f"the plan for {self.name or 'this program'} ({self.role}) was made for another program",
                why=f"it is for graph {self.captured_fingerprint}, this one is {fingerprint}",
                next_step="plan again for this model, shapes, dtypes and device",
            )


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a step: one or more programs and what they were made for.

    Attributes:
        programs: one for each graph; none where the plan is for all shapes in some ranges.
        name: of what was planned.
        budget: as it was asked for.
        seed: of the search.
        device: name of the device whose costs were used.
        versions: of the packages that it was made with.
        atomic: updates wait for everything that can fail.
        signature: facts about the step that it was made for, as (name, text): to say what differs.
        captured_on: kind of the device whose kernels the step was captured with, such as `cpu`.
        allow_nondeterministic: what is recomputed may give other bits than the first time.
        numerics: what was allowed: `bitwise`, or `close`, where sums may be taken in another order. Calls that the plan
            does not cover are planned alike.
        axes: of the usual step as it was captured, in words.
        all_shapes: the plan of a step whose dims may vary; None where it is for one shape.
        checkpoints: `undo` where functions under `torch.utils.checkpoint` run once, as plain code.
    """

    programs: tuple[PlannedProgram, ...]
    name: str = ""
    budget: BudgetRecord = BudgetRecord()
    seed: _Count = 0
    device: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    atomic: bool = False
    signature: tuple[tuple[str, str], ...] = ()
    captured_on: str = ""
    allow_nondeterministic: bool = False
    numerics: Literal["bitwise", "close"] = "bitwise"
    axes: tuple[str, ...] = ()
    all_shapes: ShapesRecord | None = None
    checkpoints: Literal["keep", "undo"] = "keep"

    def program(self, role: str) -> PlannedProgram:
        """The program of a role.

        Raises:
            PlanError: when the plan has none.
        """
        for program in self.programs:
            if program.role == role:
                return program
        roles = ", ".join(program.role for program in self.programs)
        raise PlanError(f"the plan has no program for {role!r}", why=f"it has: {roles or 'none'}")

    def to_json(self) -> str:
        """The plan as the text of a plan file; equal plans give equal texts.

        Raises:
            PlanError: when something in it cannot be written as JSON.
        """
        try:
            return file_text(msgspec.to_builtins(self))
        except (TypeError, ValueError, msgspec.MsgspecError) as error:
            raise PlanError("the plan cannot be written as JSON", why=str(error)) from error

    @staticmethod
    def from_json(text: str | bytes, *, path: str | Path | None = None) -> Plan:
        """Read the text of a plan file.

        Args:
            text: the whole file.
            path: where it comes from, for messages.

        Raises:
            PlanError: for text that is truncated, edited, of an unknown version or no plan at all, and for a plan
                that contradicts itself.
        """
        where = None if path is None else str(path)
        content = file_content(text, where)
        try:
            plan = msgspec.convert(content, Plan)
        except msgspec.ValidationError as error:
            raise PlanError(
                f"the plan file lacks a field or has a wrong one: {error}", where=where, next_step=AGAIN
            ) from error
        check_known(content, msgspec.to_builtins(plan), where)
        try:
            check_content(plan)
        except PlanError as error:
            raise PlanError(error.what, where=where, next_step=error.next_step) from error
        return plan

    def save(self, path: str | Path) -> None:
        """Write the plan file; a plan that stood there stays until the new one is whole.

        Raises:
            PlanError: when the file cannot be written.
        """
        text = self.to_json()
        try:
            write_atomic(path, text)
        except OSError as error:
            why = error.strerror or str(error)
            raise PlanError("the plan cannot be saved", where=str(path), why=why) from error

    @staticmethod
    def load(path: str | Path) -> Plan:
        """Read a plan file.

        Raises:
            PlanError: when there is no such file, or it is truncated, edited, of an unknown version or contradicts
                itself.
        """
        try:
            text = read_bytes(path)
        except UnreadableFile as error:
            raise PlanError(
                "the plan cannot be read", where=str(path), why=error.why, next_step=error.next_step
            ) from error
        return Plan.from_json(text, path=path)

    def apply(self, *args: Any, **kwargs: Any) -> Any:
        """Apply the plan to a model and its step; see `neaptide.api.apply`."""
        return importlib.import_module("neaptide.api").apply(self, *args, **kwargs)

    def explain(self, *args: Any, **kwargs: Any) -> Any:
        """Say what the plan does and why; see `neaptide.api.explain`."""
        return importlib.import_module("neaptide.api").explain(self, *args, **kwargs)
