"""Several memories on the command line: which buffer lies in which, at which address, and at what cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neaptide.cli import exit_codes
from neaptide.cli.command import Request
from neaptide.cli.interrupts import asking_before_aborting
from neaptide.cli.target_files import decode_target, naming
from neaptide.errors import UsageError
from neaptide.reading import read_bytes
from neaptide.units import format_bytes

if TYPE_CHECKING:
    from neaptide.layout.pools.spaces import PooledLayout, PooledProblem
    from neaptide.outcome import Outcome
    from neaptide.report.document import Document


def show_memories(request: Request) -> int:
    """Places the buffers of a target in the memories of `--memories`.

    Raises:
        UsageError: an option that has no meaning for several memories.
        TargetError: a mistake in the file of memories.
    """
    from neaptide.cli.layout_source import find_problem
    from neaptide.layout.pools.memories_form import pooled_problem
    from neaptide.layout.pools.placing import place_in_spaces
    from neaptide.outcome import Limits

    assert request.memories is not None
    given = {
        "--capacity": request.settings.capacity,
        "--method": request.settings.method,
        "--picture": request.picture,
        "--text": request.text,
        "--ladder": request.ladder,
        "-o": request.output,
    }
    for option, value in given.items():
        if value:
            raise UsageError(f"{option} has no meaning with --memories", next_step="leave one of them out")
    content = decode_target(request.memories, read_bytes(request.memories))
    problem, outside = find_problem(request)
    with naming(request.memories):
        pooled = pooled_problem(problem, content)
    settings, console = request.settings, request.console
    console.progress(f"placing {len(pooled)} buffers in {len(pooled.spaces)} memories")
    limits = Limits(time_s=settings.time_limit_s, work=settings.work_limit, seed=settings.seed)
    with asking_before_aborting() as interrupt:
        outcome = place_in_spaces(pooled, limits, interrupt)
    if console.as_json:
        console.json(memories_content(pooled, outcome))
    else:
        console.document(memories_document(pooled, outcome, outside))
    return exit_codes.DONE if outcome.value is not None else exit_codes.OVER_BUDGET


def memories_content(pooled: PooledProblem, outcome: Outcome[PooledLayout]) -> dict[str, Any]:
    """The result for `--json`."""
    layout, termination = outcome.value, outcome.termination
    places = None
    if layout is not None:
        places = {
            buffer.name: {
                "space": pooled.spaces[place.space].name,
                "arena": place.arena,
                "offset": place.offset,
            }
            for buffer, place in zip(pooled.problem.buffers, layout.places, strict=True)
        }
    return {
        "cost": termination.best,
        "lower_bound_cost": termination.bound,
        "gap": termination.gap,
        "status": str(termination.reason),
        "detail": termination.detail,
        "solve_seconds": outcome.seconds,
        "spaces": []
        if layout is None
        else [
            {
                "name": space.name,
                "arena_bytes": list(layout.arena_bytes[index]),
                "buffers": len(layout.members(index)),
            }
            for index, space in enumerate(pooled.spaces)
        ],
        "places": places,
    }


def memories_document(pooled: PooledProblem, outcome: Outcome[PooledLayout], outside: str = "") -> Document:
    """The result as a table of the memories, with what it costs and what is proved."""
    from neaptide.report.document import Table, document

    layout, termination = outcome.value, outcome.termination
    title = f"{pooled.problem.name or 'problem'}: {len(pooled)} buffers in {len(pooled.spaces)} memories"
    if layout is None:
        proof = "no layout fits" if termination.is_proved else "no layout found, and none excluded"
        return document(title, f"{proof}: {termination.detail}", outside)
    rows = []
    for index, space in enumerate(pooled.spaces):
        capacity = "no end" if space.capacity_bytes is None else format_bytes(space.capacity_bytes)
        members = layout.members(index)
        cost = sum(pooled.costs[buffer][index] for buffer in members)
        arenas = str(len(layout.arena_bytes[index]))
        rows.append(
            (
                space.name,
                str(len(members)),
                arenas,
                format_bytes(layout.space_bytes(index)),
                capacity,
                str(cost),
            )
        )
    gap = "" if termination.gap is None else f"; the gap is {termination.gap:.2%}"
    proof = (
        "No choice costs less."
        if termination.is_proved
        else f"No choice costs less than {termination.bound}{gap}."
    )
    return document(
        title,
        Table(("memory", "buffers", "arenas", "bytes", "capacity", "cost"), tuple(rows)),
        f"cost: {layout.cost}. {proof}",
        outside,
    )
