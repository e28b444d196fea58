"""The ladder on the command line: what four ways to give a program its memory need, one row each."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from neaptide.cli import exit_codes
from neaptide.cli.command import Request
from neaptide.cli.interrupts import asking_before_aborting
from neaptide.errors import UsageError
from neaptide.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    Rung: TypeAlias = tuple[str, int, str]
    """Its name, its bytes, and what it did in words."""


def show_ladder(request: Request) -> int:
    """Prints the ladder of a program: no reuse, in-place, liveness counters, static plan.

    Raises:
        MissingExtra: peers are not installed; the ladder is one of them.
        UsageError: buffers without a program, or an option that has no meaning for a ladder.
    """
    from neaptide.cli.layout_source import PROGRAM_ALIGNMENT, Program, find_source
    from neaptide.named_peers import peer
    from neaptide.ops import registry
    from neaptide.outcome import Limits

    given = {
        "--capacity": request.settings.capacity,
        "--method": request.settings.method,
        "--workspace": request.settings.workspace,
        "--picture": request.picture,
        "--text": request.text,
        "-o": request.output,
    }
    for option, value in given.items():
        if value:
            raise UsageError(f"{option} has no meaning with --ladder", next_step="leave one of them out")
    found = find_source(request)
    if not isinstance(found, Program):
        raise UsageError(
            "a CSV of buffers has no ladder",
            where=request.target,
            why="which results can lie on top of operands is not in it",
            next_step="give a program, a plan or a graph as JSON",
        )
    settings = request.settings
    limits = Limits(time_s=settings.time_limit_s, work=settings.work_limit, seed=settings.seed)
    with asking_before_aborting() as interrupt:
        rows: Sequence[Rung] = peer("layouts", "ladder").memory_ladder(
            found.graph,
            found.schedule,
            registry(),
            storage_bytes=found.storage_bytes,
            alignment=settings.alignment or PROGRAM_ALIGNMENT,
            limits=limits,
            interrupt=interrupt,
        )
    if request.console.as_json:
        content = [{"name": name, "bytes": nbytes, "note": note} for name, nbytes, note in rows]
        request.console.json({"ladder": content})
    else:
        from neaptide.report.document import Table, document

        _, most, _ = rows[0]
        cells = tuple(
            (name, format_bytes(nbytes), f"{nbytes / most:.1%}" if most else "", note)
            for name, nbytes, note in rows
        )
        table = Table(("memory", "bytes", "of no reuse", "how"), cells, left=frozenset({3}))
        name = found.graph.name or request.target
        request.console.document(document(f"{name}: what it makes, four ways", table))
    return exit_codes.DONE
