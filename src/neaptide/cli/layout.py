"""The command that places buffers in an arena: those of a CSV, of a program, or of a program under a plan."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from neaptide.cli import exit_codes
from neaptide.cli.command import Request
from neaptide.cli.commands import require_torch, write_result
from neaptide.cli.interrupts import asking_before_aborting
from neaptide.errors import TargetError, UsageError
from neaptide.units import format_bytes, format_seconds, parse_size

if TYPE_CHECKING:
    from neaptide.ir.graph import Graph
    from neaptide.layout.from_schedule import ScheduleBuffers
    from neaptide.layout.problem import LayoutProblem
    from neaptide.layout.result import LayoutResult
    from neaptide.outcome import Termination
    from neaptide.plans import Plan
    from neaptide.report.document import Document

_PROGRAM_ALIGNMENT: Final = 64  # a cache line, and enough for every vector load of a CPU
_PIPED_WIDTH: Final = 100


def layout(request: Request) -> int:
    """Gives every buffer an address, and says what is proved."""
    from neaptide.layout.best_layout import best_layout
    from neaptide.outcome import Limits
    from neaptide.report.layout_picture import save_picture
    from neaptide.report.picture_file import check_picture_path

    settings, console = request.settings, request.console
    if request.picture is not None:
        check_picture_path(request.picture)
    capacity = None if settings.capacity is None else parse_size(settings.capacity)
    problem, outside = _problem(request)
    console.progress(f"placing {len(problem)} buffers")
    limits = Limits(time_s=settings.time_limit_s, work=settings.work_limit, seed=settings.seed)
    with asking_before_aborting() as interrupt:
        outcome = best_layout(
            problem, limits, interrupt, capacity_bytes=capacity, methods=settings.method or None
        )
    result = outcome.require()
    if result.layout is not None:
        if request.output is not None:
            from neaptide.layout.minimalloc_csv import write_csv

            write_result(request.output, write_csv(problem, result.layout))
            console.progress(f"layout saved in {request.output}")
        if request.picture is not None:
            save_picture(request.picture, problem, result.layout)
            console.progress(f"picture saved in {request.picture}")
    elif request.output is not None or request.picture is not None:
        console.note("there is no layout within the capacity, so nothing is written")
    if console.as_json:
        console.json(layout_content(problem, result, outcome.termination))
    else:
        console.document(layout_document(problem, result, outcome.termination, outside))
        if request.text and result.layout is not None:
            from neaptide.report.layout_text import layout_text

            width = shutil.get_terminal_size((_PIPED_WIDTH, 0)).columns
            console.result("\n" + layout_text(problem, result.layout, width=width))
    return exit_codes.DONE if result.layout is not None else exit_codes.OVER_BUDGET


def layout_content(problem: LayoutProblem, result: LayoutResult, termination: Termination) -> dict[str, Any]:
    """The result for `--json`."""
    offsets = None
    if result.layout is not None:
        names = [buffer.name for buffer in problem.buffers]
        offsets = dict(zip(names, result.layout.offsets, strict=True))
    return {
        "arena_bytes": result.arena_bytes,
        "live_bytes": result.live_bytes,
        "lower_bound_bytes": result.lower_bound_bytes,
        "status": str(termination.reason),
        "certificate": str(result.certificate),
        "solve_seconds": result.seconds,
        "gap": result.gap,
        "methods": {
            name: {
                "arena_bytes": method.arena_bytes,
                "solve_seconds": method.seconds,
                "nodes": method.nodes,
            }
            for name, method in result.methods.items()
        },
        "offsets": offsets,
    }


def layout_document(
    problem: LayoutProblem, result: LayoutResult, termination: Termination, outside: str = ""
) -> Document:
    """The result as a table of the methods that ran, what is proved, and what lies outside the arena."""
    from neaptide.report.document import Table, document

    rows = []
    for name, method in result.methods.items():
        found = method.arena_bytes
        arena = "none" if found is None else format_bytes(found)
        above = "" if found is None or not result.live_bytes else f"{found / result.live_bytes - 1:.2%}"
        nodes = str(method.nodes) if method.nodes else ""
        rows.append((name, arena, above, nodes, format_seconds(method.seconds)))
    return document(
        f"{problem.name or 'problem'}: {len(problem)} buffers",
        Table(("method", "arena", "above live bytes", "nodes", "seconds"), tuple(rows)) if rows else None,
        f"live bytes: {_exact(result.live_bytes)}",
        f"arena: {_arena(result, termination)}",
        outside,
        f"{result.nodes} nodes in {format_seconds(result.seconds)}",
    )


def _arena(result: LayoutResult, termination: Termination) -> str:
    bound = _exact(result.lower_bound_bytes)
    if result.arena_bytes is None:
        found = [m.arena_bytes for m in result.methods.values() if m.arena_bytes is not None]
        smallest = f" The smallest arena found has {_exact(min(found))}." if found else ""
        capacity = (
            "capacity" if result.capacity_bytes is None else f"capacity of {_exact(result.capacity_bytes)}"
        )
        return f"none within the {capacity} ({result.certificate}).{smallest} No arena is below {bound}."
    arena = _exact(result.arena_bytes)
    if result.certificate.is_optimal:
        return f"{arena}. No layout has a smaller one ({result.certificate})."
    fits = "" if result.capacity_bytes is None else ", within the capacity"
    limit = "" if termination.limit is None else f" The {termination.limit} limit ended the search."
    return f"{arena}{fits}. No layout has one below {bound}; the gap is {result.gap:.2%}.{limit}"


def _exact(nbytes: int) -> str:
    shown = format_bytes(nbytes)
    return shown if shown.endswith(" B") else f"{shown} ({nbytes} bytes)"


def _problem(request: Request) -> tuple[LayoutProblem, str]:
    """What there is to place, and in a sentence what stays outside."""
    path = Path(request.target)
    if path.suffix == ".csv" or (path.is_file() and path.suffix not in {".json", ".py"}):
        if request.plan is not None:
            raise UsageError(
                "a CSV of buffers takes no plan", where=request.target, next_step="leave out --plan"
            )
        return _from_csv(path, request.settings.alignment), ""
    if path.suffix == ".json" and path.is_file():
        return _from_json(path, request)
    return _from_program(request.target, _load_plan(request.plan), request)


def _from_csv(path: Path, alignment: int | None) -> LayoutProblem:
    from neaptide.layout.minimalloc_csv import read_csv
    from neaptide.layout.problem import LayoutProblem

    try:
        text = path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TargetError(
            f"{path} cannot be read", where=str(path.absolute()), why=str(error), next_step="check the path"
        ) from error
    problem = read_csv(text, path=path)
    if alignment is None:
        return problem
    buffers = tuple(replace(buffer, alignment=max(buffer.alignment, alignment)) for buffer in problem.buffers)
    return LayoutProblem(buffers, problem.name)


def _from_json(path: Path, request: Request) -> tuple[LayoutProblem, str]:
    """A plan says by its name for which program it is; a graph is laid out as it is, without torch."""
    import msgspec

    from neaptide.ir import serial, wire
    from neaptide.plans import Plan

    data = path.read_bytes()
    try:
        content = msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise TargetError(f"{path} is no JSON", why=str(error), next_step="check the file") from error
    if isinstance(content, dict) and content.get("format") == wire.FORMAT:
        return _from_graph(serial.from_json(data), _load_plan(request.plan), None, None, request)
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


def _from_program(target: str, plan: Plan | None, request: Request) -> tuple[LayoutProblem, str]:
    from neaptide.cli.targets import find_target

    require_torch()
    console = request.console
    with console.user_code():
        step, batch = find_target(target).build()
        from neaptide.frontends.torch_step import capture_step
        from neaptide.runtime.prepared_step import PreparedStep

        prepared = PreparedStep(capture_step(step, (batch,), name=target), progress=console.progress)
        costs = prepared.costs()
    graph = prepared.captured.steady.graph
    return _from_graph(graph, plan, costs.storage_bytes, costs.workspace, request)


def _from_graph(
    graph: Graph,
    plan: Plan | None,
    storage_bytes: Mapping[int, int] | None,
    workspace: Mapping[int, int] | None,
    request: Request,
) -> tuple[LayoutProblem, str]:
    """The buffers of the usual step, in program order or in the order of a plan."""
    from neaptide.ir.schedule import Schedule
    from neaptide.ir.serial import fingerprint
    from neaptide.layout.from_schedule import schedule_buffers

    schedule = Schedule.program_order(graph)
    if plan is not None:
        program = plan.program("steady")
        program.check_fingerprint(fingerprint(graph))
        schedule = Schedule.from_nodes(graph, program.sequence)
    made = schedule_buffers(
        graph,
        schedule,
        storage_bytes=storage_bytes,
        workspace=(workspace or {}) if request.settings.workspace else None,
        alignment=request.settings.alignment or _PROGRAM_ALIGNMENT,
    )
    return made.problem, _outside(made)


def _outside(made: ScheduleBuffers) -> str:
    return (
        f"outside the arena: {format_bytes(made.resident_bytes)} that the caller owns, "
        f"{format_bytes(made.handed_back_bytes)} of results that are handed back"
    )
