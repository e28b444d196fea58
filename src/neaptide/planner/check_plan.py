"""The checker of plans: is a planned program legal on its graph, and are its bytes those that it will use.

It stands at both doors: after the search, when a plan is made, and before the first step, when one is loaded. Legality
and bytes come from `analysis`, which shares no code with the planners. What a plan says of seconds was measured where
it was made, so `plans.content` asks only that it agrees with itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from neaptide.analysis.legality.schedule import check_bodies, check_schedule
from neaptide.analysis.loops import NO_BODIES, Binding, Bodies, InBodies, Path
from neaptide.analysis.profile_bytes import MemoryProfile, loop_workspaces, memory_profile
from neaptide.analysis.sizes import evaluate_storage_bytes
from neaptide.budget import Budget, allowed_bytes
from neaptide.errors import InvalidBudget, PlanError, VerifyError
from neaptide.ir.fingerprint import fingerprint
from neaptide.ir.graph import Graph
from neaptide.ir.loops.orders import body_schedules
from neaptide.ir.registry import OpRegistry
from neaptide.ir.schedule import Schedule
from neaptide.layout.bounds import live_bytes
from neaptide.layout.from_schedule import schedule_buffers
from neaptide.planner.atomic import AtomicStep, atomic_step, check_atomic
from neaptide.planner.graphs.record import random_state_bytes, told_recomputations
from neaptide.planner.objective import PlannedSequence
from neaptide.plans import AssumedBytes, BudgetRecord, CapturedGraph, PlannedProgram, wrong_field
from neaptide.schedule.problem import StepProblem, compile_problem


def problem_of(
    program: PlannedProgram,
    graph: Graph,
    registry: OpRegistry,
    *,
    captured: CapturedGraph | None = None,
    binding: Binding | None = None,
) -> StepProblem:
    """The integer problem of a graph under what a plan assumes of its bytes; each node takes one second.

    Bodies of loops run in the orders of the plan, which are checked to be legal.

    Raises:
        PlanError: the plan assumes something of nodes or storages that the graph has not, or the order of a body is not
            legal.
    """
    bodies = NO_BODIES
    if captured is None:
        bodies = checked_bodies(program, graph, registry)
    assumed = program.assumed if captured is None else captured.assumed
    field = f"{program.role}.assumed" if captured is None else f"{program.role}.captured.assumed"
    for name, pairs, count in (
        ("workspace", assumed.workspace, len(graph.nodes)),
        ("storages", assumed.storages, len(graph.storages)),
    ):
        ids = [key for key, _ in pairs]
        if ids != sorted(set(ids)) or (ids and ids[-1] >= count):
            raise wrong_field(f"{field}.{name}", f"has ids that do not rise, or go beyond {count}")
    if loops := [node for node, _ in assumed.workspace if graph.nodes[node].regions]:
        raise wrong_field(f"{field}.workspace", f"has the loop {loops[0]}, which needs what its body needs")
    for name, known, leads, what in (
        ("in_bodies", assumed.in_bodies, _is_in_body, "operation"),
        ("storages_in_bodies", assumed.storages_in_bodies, _is_made_in_body, "storage"),
    ):
        paths = [path for path, _ in known]
        if paths != sorted(set(paths)) or not all(leads(graph, path) for path in paths):
            raise wrong_field(
                f"{field}.{name}", f"has paths that do not rise, or lead to no {what} of a body"
            )
    return compile_problem(
        graph,
        registry,
        binding=binding,
        workspace=dict(assumed.workspace),
        bodies=bodies,
        in_bodies=_known_in_bodies(assumed).most(InBodies.here({}, dict(assumed.storages))),
    )


def checked_bodies(program: PlannedProgram, graph: Graph, registry: OpRegistry) -> Bodies:
    """The schedules of the bodies of a program's loops, by loop, legal."""
    try:
        bodies = body_schedules(graph, program.bodies)
        check_bodies(graph, bodies, registry)
    except VerifyError as error:
        raise wrong_field(f"{program.role}.bodies", f"is not legal: {_in_one_line(error)}") from error
    return bodies


def plan_workspace(
    assumed: AssumedBytes, graph: Graph, bodies: Bodies = NO_BODIES, binding: Binding | None = None
) -> dict[int, int]:
    """Scratch bytes by node id that a plan assumes, loops with all that their bodies hold in their orders."""
    return {**dict(assumed.workspace), **loop_workspaces(graph, binding, bodies, _known_in_bodies(assumed))}


def check_program(
    program: PlannedProgram,
    graph: Graph,
    step: StepProblem,
    registry: OpRegistry,
    *,
    captured: Graph | None = None,
    atomic: bool = False,
    binding: Binding | None = None,
) -> Schedule:
    """Judge a planned program beside its graph, and give its schedule. About two plays of the schedule.

    `registry` says what the operations mean, and not the plan itself: a file cannot allow itself other bits. `captured` is
    the graph before the rewrites.

    Raises:
        PlanMismatch: the graph has another fingerprint.
        PlanError: the sequence is not legal, or a number is not what the graph gives; names the field.
    """
    if captured is None:
        program.check_fingerprint(fingerprint(graph))
    if program.node_count != len(graph.nodes):
        raise wrong_field(f"{program.role}.node_count", f"is {program.node_count}, not {len(graph.nodes)}")
    return _Checker(program, graph, step, registry, captured, binding).check(atomic=atomic)


def check_baseline(
    program: PlannedProgram, graph: Graph, step: StepProblem, registry: OpRegistry, captured: Graph
) -> None:
    """Judge what a program says of the graph before its rewrites, where `check_program` has passed the rest. One play of it.

    Raises:
        PlanError: a number is not what that graph gives; names the field.
    """
    _Checker(program, graph, step, registry, captured, None).check_baseline(NO_BODIES)


def check_budgets(
    record: BudgetRecord, programs: Sequence[PlannedProgram], written_peaks: Sequence[int]
) -> None:
    """Check that each program was allowed the bytes that the budget gives it for its written peak, and keeps to the host's."""
    try:
        budget = Budget(
            record.peak, record.latency, record.outside_bytes, record.host, record.state_between_steps
        )
        first: int | None = None
        for program, peak in zip(programs, written_peaks, strict=True):
            allowed = allowed_bytes(budget, peak, first, record.least_bytes)
            if budget.is_min:
                allowed = program.predictions.peak_with_workspace_bytes
            if program.budget_bytes != allowed:
                raise wrong_field(
                    f"{program.role}.budget_bytes",
                    f"is {program.budget_bytes}, and the budget gives {allowed}",
                )
            on_host = program.predictions.host_bytes
            if on_host > budget.host_bytes:
                raise wrong_field(
                    f"{program.role}.predictions.host_bytes",
                    f"is {on_host}, and the budget allows {budget.host_bytes} on the host",
                )
            is_between = any(offload.begins_before or offload.ends_after for offload in program.offloads)
            if is_between and not budget.state_between_steps:
                raise wrong_field(
                    f"{program.role}.offloads", "are between two steps, and the budget allows none there"
                )
            first = allowed if first is None else first
    except InvalidBudget as error:
        raise wrong_field("budget", f"is none: {error.what}") from error


@dataclass(frozen=True)
class _Checker:
    program: PlannedProgram
    graph: Graph
    step: StepProblem
    registry: OpRegistry
    captured: Graph | None
    binding: Binding | None

    @property
    def storages(self) -> dict[int, int]:
        return dict(self.program.assumed.storages)

    def check(self, *, atomic: bool) -> Schedule:
        program, graph = self.program, self.graph
        bodies = checked_bodies(program, graph, self.registry)
        schedule = Schedule.from_nodes(graph, program.sequence, bodies)
        name = "sequence"
        try:
            check_schedule(graph, schedule, self.registry)
            name = "offloads"
            if program.offloads:
                schedule = schedule.with_offloads(program.offloads)
                check_schedule(graph, schedule, self.registry)
        except VerifyError as error:
            raise self._wrong(name, f"is not legal: {_in_one_line(error)}") from error
        whole = self._check_atomic() if atomic else None
        self._check_bytes(schedule, whole)
        self._check_arena(schedule)
        told = tuple((r.storage, r.nbytes, r.nodes, r.before) for r in program.moves.recomputations)
        found = told_recomputations(self.step, program.sequence)
        if told != tuple((r.storage, r.nbytes, r.nodes, r.before) for r in found):
            raise self._wrong("moves.recomputations", "is not what the sequence runs again")
        copied = () if program.copies is None else tuple(row.nbytes for row in program.copies.rows)
        if copied and copied != tuple(self.step.moved_bytes(s.storage) for s in program.offloads):
            raise self._wrong("copies.rows", "have other bytes than the storages that wait on the host")
        return schedule

    def _wrong(self, name: str, why: str) -> PlanError:
        return wrong_field(f"{self.program.role}.{name}", why)

    def _check_atomic(self) -> AtomicStep:
        whole = atomic_step(self.step, evaluate_storage_bytes(self.graph, self.binding, self.storages))
        if self.program.saved != whole.saved:
            raise self._wrong("saved", f"is {self.program.saved}, and an atomic step saves {whole.saved}")
        name = "sequence"
        try:
            check_atomic(whole, self.program.sequence)
            name = "offloads"
            check_atomic(whole, self.program.sequence, self.program.offloads)
        except VerifyError as error:
            raise self._wrong(name, f"is not atomic: {_in_one_line(error)}") from error
        return whole

    def _check_bytes(self, schedule: Schedule, whole: AtomicStep | None) -> None:
        step = self.step
        found = self._profile(schedule)
        saved = extra = 0
        if whole is not None:
            saved = whole.saved_bytes
            waiting = PlannedSequence.evaluate(whole.step, whole.order, "")
            unplanned = self._profile(Schedule.program_order(self.graph, schedule.bodies))
            extra = max(waiting.peak_with_workspace_bytes - unplanned.peak_with_workspace_bytes, 0)
        least, in_order = step.lower_bound_bytes + saved, step.order_lower_bound_bytes + saved
        searched = step if whole is None else whole.step
        least, in_order = (
            searched.least_with_offloads(nbytes, self.program.offloads) for nbytes in (least, in_order)
        )
        self._check_stated(
            peak_bytes=found.peak_bytes + saved,
            peak_with_workspace_bytes=found.peak_with_workspace_bytes + saved,
            lower_bound_bytes=least,
            order_lower_bound_bytes=in_order,
            saved_bytes=saved,
            atomic_extra_bytes=extra,
            random_state_bytes=random_state_bytes(self.graph, self.program.sequence),
            host_bytes=found.peak_host_bytes,
        )
        self.check_baseline(schedule.bodies)

    def check_baseline(self, bodies: Bodies) -> None:
        before = self._before(bodies)
        self._check_stated(
            baseline_peak_bytes=before.peak_bytes,
            baseline_peak_with_workspace_bytes=before.peak_with_workspace_bytes,
            persistent_bytes=before.persistent_bytes,
        )

    def _check_stated(self, **numbers: int) -> None:
        for name, right in numbers.items():
            if (stated := getattr(self.program.predictions, name)) != right:
                raise self._wrong(f"predictions.{name}", f"is {stated}, and the sequence uses {right}")

    def _profile(self, schedule: Schedule) -> MemoryProfile:
        return self._profile_of(self.graph, schedule, self.program.assumed)

    def _before(self, bodies: Bodies) -> MemoryProfile:
        """Of the program as it was captured, in program order; where it was captured with loops, in their orders."""
        captured, written = self.captured, self.program.captured
        if captured is None:
            return self._profile(Schedule.program_order(self.graph, bodies))
        assumed = AssumedBytes() if written is None else written.assumed
        return self._profile_of(captured, Schedule.program_order(captured), assumed)

    def _profile_of(self, graph: Graph, schedule: Schedule, assumed: AssumedBytes) -> MemoryProfile:
        return memory_profile(
            graph,
            schedule,
            binding=self.binding,
            workspace=plan_workspace(assumed, graph, schedule.bodies, self.binding),
            storage_bytes=dict(assumed.storages),
            device=self.step.device,
            in_bodies=_known_in_bodies(assumed),
        )

    def _check_arena(self, schedule: Schedule) -> None:
        """The layout itself is no part of a plan, so its size is only checked to be a possible one."""
        made = self.program.predictions
        if not made.arena_bytes:
            return
        problem = schedule_buffers(
            self.graph, schedule, binding=self.binding, storage_bytes=self.storages, device=self.step.device
        ).problem
        most = sum(-(-b.nbytes // b.alignment) * b.alignment for b in problem.buffers)
        least = live_bytes(problem)
        if not least <= made.arena_lower_bound_bytes <= made.arena_bytes <= most:
            raise self._wrong(
                "predictions.arena_bytes",
                f"is {made.arena_bytes} with a bound of {made.arena_lower_bound_bytes}; "
                f"the buffers need {least} to {most}",
            )


def _known_in_bodies(assumed: AssumedBytes) -> InBodies:
    return InBodies(dict(assumed.in_bodies), dict(assumed.storages_in_bodies))


def _is_in_body(graph: Graph, path: Path) -> bool:
    """Whether a path leads through loops to a node of a body that is no loop."""
    inside = _body_at(graph, path)
    return inside is not None and path[-1] < len(inside.nodes) and not inside.nodes[path[-1]].regions


def _is_made_in_body(graph: Graph, path: Path) -> bool:
    """Whether a path leads through loops to a storage of a body that the body makes."""
    inside = _body_at(graph, path)
    is_there = inside is not None and path[-1] < len(inside.storages)
    return inside is not None and is_there and path[-1] not in inside.input_storages()


def _body_at(graph: Graph, path: Path) -> Graph | None:
    """The body that a path leads to through loops; None where it does not."""
    inside = graph
    for loop in path[:-1]:
        if loop >= len(inside.nodes) or not inside.nodes[loop].regions:
            return None
        inside = inside.nodes[loop].regions[0].body
    return inside if len(path) > 1 else None


def _in_one_line(error: VerifyError) -> str:
    return error.what if error.why is None else f"{error.what}, for {error.why}"
