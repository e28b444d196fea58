"""The command that places buffers in an arena: those of a CSV, of a program, or of a program under a plan."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any, Final

from neaptide.cli import exit_codes
from neaptide.cli.command import Request
from neaptide.cli.interrupts import asking_before_aborting
from neaptide.cli.target_files import write_result
from neaptide.units import format_bytes, format_seconds, parse_size

if TYPE_CHECKING:
    from neaptide.layout.problem import LayoutProblem
    from neaptide.layout.result import LayoutResult
    from neaptide.outcome import Termination
    from neaptide.report.document import Document

_PIPED_WIDTH: Final = 100


def layout(request: Request) -> int:
    """Gives every buffer an address, and says what is proved; asked for it, in several memories, or as a ladder."""
    from neaptide.cli.layout_ladder import show_ladder
    from neaptide.cli.layout_memories import show_memories
    from neaptide.cli.layout_source import find_problem
    from neaptide.layout.best_layout import best_layout
    from neaptide.outcome import Limits
    from neaptide.report.chart_file import check_picture_path, save_chart
    from neaptide.report.layout_picture import layout_chart

    if request.memories is not None:
        return show_memories(request)
    if request.ladder:
        return show_ladder(request)
    settings, console = request.settings, request.console
    if request.picture is not None:
        check_picture_path(request.picture)
    capacity = None if settings.capacity is None else parse_size(settings.capacity)
    problem, outside = find_problem(request)
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
            save_chart(request.picture, layout_chart(problem, result.layout))
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
    from neaptide.layout.pools.caching_allocator import caching_allocator_reserved

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
        "predicted_reserved_bytes": caching_allocator_reserved(problem),
        "offsets": offsets,
    }


def layout_document(
    problem: LayoutProblem, result: LayoutResult, termination: Termination, outside: str = ""
) -> Document:
    """The result as a table of the methods that ran, what is proved, and what lies outside the arena."""
    from neaptide.layout.pools.caching_allocator import caching_allocator_reserved
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
        f"predicted reserved: {_exact(caching_allocator_reserved(problem))}, by PyTorch's caching allocator for the same "
        "buffers (simulated)",
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
