"""The plans that were run to choose one of them, as text."""

from __future__ import annotations

from typing import Final

from neaptide.plans import TrialsRecord
from neaptide.report.cells import byte_cell, counted, seconds_cell
from neaptide.report.document import Table
from neaptide.units import format_seconds

_CLOCKS: Final = {"processor": "time of the processor", "wall": "elapsed time"}


def trials_lines(found: TrialsRecord | None) -> tuple[str | Table, ...]:
    """What was tried and why one was taken; nothing where nothing was tried."""
    if found is None:
        return ()
    rows = tuple(
        (
            f"{row.planned_for}{' (taken)' if index == found.chosen else ''}",
            byte_cell(row.predicted_peak_bytes),
            f"{row.predicted_ratio:.3f}",
            f"{row.measured_ratio:.3f}",
            f"{row.measured_ratio_low:.3f} to {row.measured_ratio_high:.3f}",
            seconds_cell(row.measured_seconds),
        )
        for index, row in enumerate(found.rows)
    )
    columns = (
        "planned for",
        "predicted peak",
        "predicted ratio",
        "measured ratio",
        "95 % interval",
        "measured",
    )
    said = (
        f"Tried: {counted(len(found.rows), 'plan')}, {counted(found.rounds, 'step')} each in turns with {found.beside}, "
        f"{_CLOCKS[found.clock]}. {_why(found)}"
    )
    return said, Table(columns, rows)


def _why(found: TrialsRecord) -> str:
    limit = (
        f"{found.longest_ratio:.3f} of that time"
        if found.longest_ratio is not None
        else format_seconds(found.longest_seconds or 0.0)
    )
    return {
        "least_peak": f"Taken: the least peak of those that measured within {limit}.",
        "none_within": f"None measured within {limit}, so the fastest is taken.",
        "fastest": "Taken: the fastest of those that are predicted to fit.",
    }[found.reason]
