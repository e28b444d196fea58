"""What `neaptide layout` is asked to place: the buffers of a CSV, of a program, or of a program under a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from neaptide.cli.command import Request
from neaptide.cli.commands import prepared_target
from neaptide.cli.files import GRAPH_SUFFIX, decode_target, is_model, read_graph
from neaptide.cli.model_files.sources import model_of
from neaptide.errors import TargetError, UsageError
from neaptide.files.reading import is_file, read_bytes, read_text
from neaptide.ir.schedule import Schedule
from neaptide.layout.from_schedule import ScheduleBuffers, schedule_buffers
from neaptide.layout.problem import LayoutProblem
from neaptide.units import format_bytes

if TYPE_CHECKING:
    from neaptide.ir.graph import Graph
    from neaptide.plans import Plan

PROGRAM_ALIGNMENT: Final = 64
"""A cache line, and enough for every vector load of a CPU."""


@dataclass(frozen=True, slots=True)
class Program:
    """The usual step of a program, in an order."""

    graph: Graph
    schedule: Schedule
    storage_bytes: Mapping[int, int] | None  # by id, that replace the recorded ones
    workspace: Mapping[int, int]  # scratch bytes by node

    def buffers(self, request: Request) -> tuple[LayoutProblem, str]:
        """What there is to place, and in a sentence what stays outside."""
        made = schedule_buffers(
            self.graph,
            self.schedule,
            storage_bytes=self.storage_bytes,
            workspace=self.workspace if request.settings.workspace else None,
            alignment=request.settings.alignment or PROGRAM_ALIGNMENT,
        )
        return made.problem, _outside(made)


def find_problem(request: Request) -> tuple[LayoutProblem, str]:
    """What there is to place, and in a sentence what stays outside."""
    found = find_source(request)
    return (found, "") if isinstance(found, LayoutProblem) else found.buffers(request)


def find_source(request: Request) -> LayoutProblem | Program:
    """The buffers of a CSV, or a program in an order."""
    path = Path(request.target)
    if is_model(path):
        return _from_model(request)
    if path.suffix == ".csv" or (is_file(path) and path.suffix not in {".json", ".py", GRAPH_SUFFIX}):
        if request.plan is not None:
            raise UsageError(
                "a CSV of buffers takes no plan", where=request.target, next_step="leave out --plan"
            )
        return _from_csv(path, request.settings.alignment)
    if path.suffix == GRAPH_SUFFIX:
        return _in_order(read_graph(path), _load_plan(request.plan))
    if path.suffix == ".json":
        return _from_plan(path, request)
    return _from_program(request.target, _load_plan(request.plan), request)


def _from_csv(path: Path, alignment: int | None) -> LayoutProblem:
    from neaptide.layout.minimalloc_csv import read_csv

    problem = read_csv(read_text(path), path=path)
    if alignment is None:
        return problem
    buffers = tuple(replace(buffer, alignment=max(buffer.alignment, alignment)) for buffer in problem.buffers)
    return LayoutProblem(buffers, problem.name)


def _from_model(request: Request) -> LayoutProblem:
    """The buffers of a model file in its order, results on top of operands where they may be."""
    from neaptide.layout.from_order import order_buffers

    if request.plan is not None:
        raise UsageError("a model file takes no plan", where=request.target, next_step="leave out --plan")
    problem = model_of(request).problem()
    alignment = request.settings.alignment or PROGRAM_ALIGNMENT
    return order_buffers(problem, range(problem.op_count), alignment=alignment)


def _from_plan(path: Path, request: Request) -> Program:
    """A plan says by its name for which program it is."""
    from neaptide.plans import Plan

    data = read_bytes(path)
    decode_target(path, data)
    plan = Plan.from_json(data, path=path)
    if request.plan is not None:
        raise UsageError(
            "two plans were given", where=f"{path} and {request.plan}", next_step="leave one of them out"
        )
    try:
        return _from_program(plan.name, plan, request)
    except TargetError as error:
        raise TargetError(
            f"the program of {path} is not found: {error.what}",
            where=error.where or str(path),
            why=f"the plan is for {plan.name!r}",
            next_step=f"neaptide layout TARGET --plan {path}",
        ) from error


def _load_plan(path: Path | None) -> Plan | None:
    from neaptide.plans import Plan

    return None if path is None else Plan.load(path)


def _from_program(target: str, plan: Plan | None, request: Request) -> Program:
    prepared = prepared_target(replace(request, target=target))
    with request.console.user_code():
        prices = prepared.prices()
    return _in_order(prepared.captured.steady.graph, plan, prices.storage_bytes, prices.workspace)


def _in_order(
    graph: Graph,
    plan: Plan | None,
    storage_bytes: Mapping[int, int] | None = None,
    workspace: Mapping[int, int] | None = None,
) -> Program:
    """The usual step in program order, or in the order of a plan."""
    schedule = Schedule.program_order(graph)
    if plan is not None:
        from neaptide.ops import registry
        from neaptide.planner.check_plan import check_program, plan_workspace, problem_of
        from neaptide.planner.graphs.rewritten_plan import replayed

        program, known = plan.program("steady"), registry().with_bits(may_vary=plan.bits_may_vary)
        captured, graph = graph, replayed(program, graph, known).graph
        step = problem_of(program, graph, known)
        schedule = check_program(
            program,
            graph,
            step,
            known,
            captured=None if program.captured is None else captured,
            atomic=plan.atomic,
        )
        if program.captured is not None:  # what is known of the captured graph has other ids
            storage_bytes = dict(program.assumed.storages)
            workspace = plan_workspace(program.assumed, graph, schedule.bodies)
    return Program(graph, schedule, storage_bytes, workspace or {})


def _outside(made: ScheduleBuffers) -> str:
    return (
        f"outside the arena: {format_bytes(made.persistent_bytes)} that the caller owns, "
        f"{format_bytes(made.handed_back_bytes)} of results that are handed back"
    )
