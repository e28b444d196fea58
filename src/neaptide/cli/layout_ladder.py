"""The ladder on the command line: what four ways to give a program its memory need, one row each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neaptide.cli import exit_codes
from neaptide.cli.command import Request
from neaptide.cli.interrupts import asking_before_aborting
from neaptide.errors import UsageError
from neaptide.units import format_bytes

if TYPE_CHECKING:
    from neaptide.layout.in_place.ladder import LadderRow
    from neaptide.layout.in_place.norm_from_output import NormEffect


def show_ladder(request: Request) -> int:
    """Prints the ladder of a program: no reuse, in-place, liveness counters, static plan.

    Below it stands what norms that go backward from their output would save; nothing applies that.

    Raises:
        UsageError: buffers without a program, or an option that has no meaning for a ladder.
    """
    from neaptide.cli.layout_source import PROGRAM_ALIGNMENT, Program, find_source
    from neaptide.layout.in_place.ladder import memory_ladder
    from neaptide.layout.in_place.norm_from_output import norm_from_output_effect
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
        rows = memory_ladder(
            found.graph,
            found.schedule,
            registry(),
            storage_bytes=found.storage_bytes,
            alignment=settings.alignment or PROGRAM_ALIGNMENT,
            limits=limits,
            interrupt=interrupt,
        )
    norms = norm_from_output_effect(
        found.graph, found.schedule, registry(), storage_bytes=found.storage_bytes
    )
    if request.console.as_json:
        content = {"ladder": [_entry(row) for row in rows], "norms_from_output": _norm_entry(norms)}
        request.console.json(content)
    else:
        from neaptide.report.document import Table, document

        cells = tuple((row.name, format_bytes(row.nbytes), _share(row, rows[0]), row.note) for row in rows)
        table = Table(("memory", "bytes", "of no reuse", "how"), cells, left=frozenset({3}))
        name = found.graph.name or request.target
        request.console.document(document(f"{name}: what it makes, four ways", table, _norm_sentence(norms)))
    return exit_codes.DONE


def _entry(row: LadderRow) -> dict[str, Any]:
    """A rung for `--json`."""
    return {"name": row.name, "bytes": row.nbytes, "note": row.note}


def _share(row: LadderRow, first: LadderRow) -> str:
    return f"{row.nbytes / first.nbytes:.1%}" if first.nbytes else ""


def _norm_entry(norms: NormEffect) -> dict[str, Any]:
    """What norms could save, for `--json`."""
    return {
        "norms": len(norms.pairs),
        "recoverable": len(norms.recoverable),
        "peak_bytes": norms.peak_bytes,
        "recovered_peak_bytes": norms.recovered_peak_bytes,
    }


def _norm_sentence(norms: NormEffect) -> str:
    if not norms.recoverable:
        return ""
    return (
        f"not applied: {len(norms.recoverable)} of {len(norms.pairs)} norms could go backward from their output. The peak, "
        f"with what the caller owns, would be {format_bytes(norms.recovered_peak_bytes)} instead of "
        f"{format_bytes(norms.peak_bytes)}; but {norms.why_not_bitwise}."
    )
