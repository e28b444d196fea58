"""The command that places buffers: in one arena, in several memories, or as a ladder of ways to give a program its memory."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any, Final

from neaptide.cli.command import Request
from neaptide.cli.files import decode_target, naming
from neaptide.cli.process import exit_codes
from neaptide.cli.process.interrupts import asking_before_aborting
from neaptide.errors import UsageError
from neaptide.files.reading import read_bytes
from neaptide.outcome import Outcome, Termination
from neaptide.report.document import Document, Table, document
from neaptide.units import exact_bytes, format_bytes, format_seconds, parse_size

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from neaptide.layout.pools.spaces import PooledLayout, PooledProblem
    from neaptide.layout.problem import LayoutProblem
    from neaptide.layout.result import LayoutResult

_PIPED_WIDTH: Final = 100


def layout(request: Request) -> int:
    """Gives every buffer an address, and says what is proved; asked for it, in several memories, or as a ladder."""
    if request.memories is not None:
        return _show_memories(request)
    if request.ladder:
        return _show_ladder(request)
    from neaptide.cli.layout_source import find_problem
    from neaptide.layout.best_layout import best_layout
    from neaptide.layout.minimalloc_csv import write_csv
    from neaptide.report.charts.file import check_picture_path
    from neaptide.report.charts.pictures import layout_chart

    settings, console = request.settings, request.console
    if request.picture is not None:
        check_picture_path(request.picture)
    capacity = None if settings.capacity is None else parse_size(settings.capacity)
    problem, outside = find_problem(request)
    console.progress(f"placing {len(problem)} buffers")
    with asking_before_aborting() as interrupt:
        outcome = best_layout(
            problem, request.limits, interrupt, capacity_bytes=capacity, methods=settings.method or None
        )
    result = outcome.require()
    placed = result.layout
    if placed is None:
        if request.output is not None or request.picture is not None:
            console.note("there is no layout within the capacity, so nothing is written")
        request = request.without_files()
    else:
        request.draw(lambda: layout_chart(problem, placed))
    content = _content(problem, result, outcome.termination)
    request.deliver(
        content,
        lambda: _document(content, problem, result, outcome.termination, outside),
        noun="layout",
        text="" if placed is None else write_csv(problem, placed),
    )
    if placed is None:
        return exit_codes.OVER_BUDGET
    if request.text and not console.as_json:
        from neaptide.report.charts.layout_text import layout_text

        width = shutil.get_terminal_size((_PIPED_WIDTH, 0)).columns
        console.result("\n" + layout_text(problem, placed, width=width))
    return exit_codes.DONE


def _content(problem: LayoutProblem, result: LayoutResult, termination: Termination) -> dict[str, Any]:
    """The result for `--json`."""
    from neaptide.layout.caching_allocator import caching_allocator_reserved

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


def _document(
    content: Mapping[str, Any], problem: LayoutProblem, result: LayoutResult, ended: Termination, outside: str
) -> Document:
    """The result as a table of the methods that ran, what is proved, and what lies outside the arena."""
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
        f"live bytes: {exact_bytes(result.live_bytes)}",
        f"arena: {_arena(result, ended)}",
        f"predicted reserved: {exact_bytes(content['predicted_reserved_bytes'])}, by PyTorch's caching allocator for the same "
        "buffers (simulated)",
        outside,
        f"{result.nodes} nodes in {format_seconds(result.seconds)}",
    )


def _arena(result: LayoutResult, termination: Termination) -> str:
    bound = exact_bytes(result.lower_bound_bytes)
    if result.arena_bytes is None:
        found = [m.arena_bytes for m in result.methods.values() if m.arena_bytes is not None]
        smallest = f" The smallest arena found has {exact_bytes(min(found))}." if found else ""
        capacity = (
            "capacity"
            if result.capacity_bytes is None
            else f"capacity of {exact_bytes(result.capacity_bytes)}"
        )
        return f"none within the {capacity} ({result.certificate}).{smallest} No arena is below {bound}."
    arena = exact_bytes(result.arena_bytes)
    if result.certificate.is_optimal:
        return f"{arena}. No layout has a smaller one ({result.certificate})."
    fits = "" if result.capacity_bytes is None else ", within the capacity"
    limit = "" if termination.limit is None else f" The {termination.limit} limit ended the search."
    return f"{arena}{fits}. No layout has one below {bound}; the gap is {result.gap:.2%}.{limit}"


def _show_ladder(request: Request) -> int:
    """Prints what a program needs without reuse, with results in place, with liveness counters, and with planned addresses."""
    from neaptide.cli.layout_source import PROGRAM_ALIGNMENT, Program, find_source
    from neaptide.named_peers import peer
    from neaptide.ops import registry

    request.refuse_beside("--ladder", "--capacity", "--method", "--workspace", "--picture", "--text", "-o")
    found = find_source(request)
    if not isinstance(found, Program):
        raise UsageError(
            "buffers alone have no ladder",
            where=request.target,
            why="which results can lie on top of operands is decided for them",
            next_step="give a program, a plan or a graph as JSON",
        )
    with asking_before_aborting() as interrupt:
        rows: Sequence[tuple[str, int, str]] = peer("layouts", "ladder").memory_ladder(
            found.graph,
            found.schedule,
            registry(),
            storage_bytes=found.storage_bytes,
            alignment=request.settings.alignment or PROGRAM_ALIGNMENT,
            limits=request.limits,
            interrupt=interrupt,
        )
    most = rows[0][1]
    cells = tuple(
        (name, format_bytes(nbytes), f"{nbytes / most:.1%}" if most else "", note)
        for name, nbytes, note in rows
    )
    table = Table(("memory", "bytes", "of no reuse", "how"), cells, left=frozenset({3}))
    title = f"{found.graph.name or request.target}: what it makes, four ways"
    content = [{"name": name, "bytes": nbytes, "note": note} for name, nbytes, note in rows]
    request.deliver({"ladder": content}, lambda: document(title, table), noun="ladder")
    return exit_codes.DONE


def _show_memories(request: Request) -> int:
    """Places the buffers of a target in the memories of `--memories`: which lies in which, where, and at what cost."""
    from neaptide.cli.layout_source import find_problem
    from neaptide.layout.pools.memories_form import pooled_problem
    from neaptide.layout.pools.missing import missing_bytes
    from neaptide.layout.pools.placing import place_in_spaces

    assert request.memories is not None
    request.refuse_beside("--memories", "--capacity", "--method", "--picture", "--text", "--ladder", "-o")
    content = decode_target(request.memories, read_bytes(request.memories))
    problem, outside = find_problem(request)
    with naming(request.memories):
        pooled = pooled_problem(problem, content)
    request.console.progress(f"placing {len(pooled)} buffers in {len(pooled.spaces)} memories")
    with asking_before_aborting() as interrupt:
        outcome = place_in_spaces(pooled, request.limits, interrupt)
        is_free = outcome.value is None and not pooled.allowed
        missing = missing_bytes(problem, pooled.spaces, request.limits, interrupt) if is_free else None
    request.deliver(
        {**_memories_content(pooled, outcome), **({} if missing is None else {"missing_bytes": missing})},
        lambda: _memories_document(pooled, outcome, outside, missing),
        noun="layout",
    )
    return exit_codes.DONE if outcome.value is not None else exit_codes.OVER_BUDGET


def _memories_content(pooled: PooledProblem, outcome: Outcome[PooledLayout]) -> dict[str, Any]:
    """The result for `--json`."""
    layout, ended = outcome.value, outcome.termination
    places, spaces = None, []
    if layout is not None:
        places = {
            buffer.name: {
                "space": pooled.spaces[place.space].name,
                "arena": place.arena,
                "offset": place.offset,
            }
            for buffer, place in zip(pooled.problem.buffers, layout.places, strict=True)
        }
        spaces = [
            {
                "name": space.name,
                "arena_bytes": list(layout.arena_bytes[index]),
                "buffers": len(layout.members(index)),
            }
            for index, space in enumerate(pooled.spaces)
        ]
    return {
        "cost": ended.best,
        "lower_bound_cost": ended.bound,
        "gap": ended.gap,
        "status": str(ended.reason),
        "detail": ended.detail,
        "solve_seconds": outcome.seconds,
        "spaces": spaces,
        "places": places,
    }


def _memories_document(
    pooled: PooledProblem, outcome: Outcome[PooledLayout], outside: str, missing: int | None
) -> Document:
    """The result as a table of the memories, with what it costs and what is proved."""
    layout, ended = outcome.value, outcome.termination
    title = f"{pooled.problem.name or 'problem'}: {len(pooled)} buffers in {len(pooled.spaces)} memories"
    if layout is None:
        proof = "no layout fits" if ended.is_proved else "no layout found, and none excluded"
        more = (
            None if missing is None else f"{exact_bytes(missing)} are missing in the memory that costs most."
        )
        return document(title, f"{proof}: {ended.detail}", more, outside)
    rows = []
    for index, space in enumerate(pooled.spaces):
        capacity = "no end" if space.capacity_bytes is None else format_bytes(space.capacity_bytes)
        members = layout.members(index)
        cost = sum(pooled.costs[buffer][index] for buffer in members)
        arenas, nbytes = str(len(layout.arena_bytes[index])), format_bytes(layout.space_bytes(index))
        rows.append((space.name, str(len(members)), arenas, nbytes, capacity, str(cost)))
    gap = "" if ended.gap is None else f"; the gap is {ended.gap:.2%}"
    proof = "No choice costs less." if ended.is_proved else f"No choice costs less than {ended.bound}{gap}."
    return document(
        title,
        Table(("memory", "buffers", "arenas", "bytes", "capacity", "cost"), tuple(rows)),
        f"cost: {layout.cost}. {proof}",
        outside,
    )
