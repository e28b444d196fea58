"""What a run of a plan gave, predicted beside measured; and what an arena holds and what it does not, in sentences."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from neaptide.report.cells import bullets, byte_cell, counted, difference_cell, origin, seconds_cell
from neaptide.report.document import Document, Table, document
from neaptide.report.model import RunReport
from neaptide.runtime.arena.plan import ArenaOnTheWay, ArenaReport, OutsideStorage
from neaptide.units import format_bytes, format_seconds

_MOST_GROUPS: Final = 6


def run_document(report: RunReport) -> Document:
    """A run from top to bottom."""
    return document(
        f"{report.name or 'step'}: {counted(report.steps, 'step')} of the plan",
        Table(
            ("", "predicted", "measured"),
            (
                ("peak", byte_cell(report.predicted_peak_bytes), byte_cell(report.measured_peak_bytes)),
                (
                    "with workspace",
                    byte_cell(report.predicted_peak_with_workspace_bytes),
                    byte_cell(report.measured_allocator_peak_bytes),
                ),
                ("step time (median)", "-", seconds_cell(report.step_seconds)),
            ),
        ),
        bullets("Arena", () if report.arena is None else arena_lines(report.arena)),
        arena_table(report.arena_on_the_way) if report.arena_on_the_way else None,
        "Losses: " + ", ".join(f"{loss:.6g}" for loss in report.losses) if report.losses else None,
        _verification(report),
        f"Calls: {report.calls}" if report.calls else None,
        origin(report.versions, report.seed),
    )


def _verification(report: RunReport) -> str:
    if report.bitwise_equal is None and not report.max_abs_diff:
        return "Not verified against eager; --verify does it."
    if report.bitwise_equal:
        return "Verified against eager: every tensor has the same bits."
    groups = ", ".join(
        f"{group.replace('_', ' ')} {difference_cell(difference)}"
        for group, difference in report.max_abs_diff.items()
    )
    return f"Verified against eager, largest differences: {groups}."


def arena_lines(report: ArenaReport) -> tuple[str, ...]:
    """Size and proof, how results get in, and what stays outside, the largest first. O(n log n)."""
    share = f", {report.copy_seconds / report.step_seconds:.1%} of the step" if report.step_seconds else ""
    copies = (
        f"{counted(report.copied, 'result')} copied in, {format_bytes(report.copied_bytes)} a step "
        f"(predicted {format_seconds(report.copy_seconds)}{share})"
        if report.copied
        else "no result copied in"
    )
    workspace = report.peak_with_workspace_bytes - report.peak_bytes
    groups = sorted(_groups(report.outside), key=lambda group: (-group[0], group[1]))
    shown = [text for _, text in groups[:_MOST_GROUPS]]
    if len(groups) > _MOST_GROUPS:
        shown.append(f"outside: {counted(len(groups) - _MOST_GROUPS, 'more kind')} of storages")
    size = (
        f"one block of {format_bytes(report.arena_bytes)} for {format_bytes(report.live_bytes)} live "
        f"({report.certificate}); {format_bytes(report.outside_peak_bytes)} outside at most, "
        f"{format_bytes(workspace)} more with workspace"
    )
    reserved = (
        f"predicted reserved: {format_bytes(report.predicted_reserved_bytes)}, by PyTorch's caching allocator "
        "for the same results (simulated)"
    )
    return (
        size,
        reserved,
        f"{counted(report.written, 'result')} written in place, {copies}",
        *shown,
    )


def arena_table(found: Sequence[ArenaOnTheWay]) -> Table:
    """What is predicted of the arena at some shapes of a range."""
    return Table(
        ("shape", "arena", "live in it", "outside", "peak with workspace", "without an arena"),
        tuple(
            (
                ", ".join(f"{dim} = {size}" for dim, size in one.shape.items()),
                byte_cell(one.arena_bytes),
                byte_cell(one.live_bytes),
                byte_cell(one.outside_peak_bytes),
                byte_cell(one.peak_with_workspace_bytes),
                byte_cell(one.plain_peak_with_workspace_bytes),
            )
            for one in found
        ),
    )


def _groups(outside: Iterable[OutsideStorage]) -> list[tuple[int, str]]:
    """Most bytes at one step and a sentence for each operation and reason."""
    found: dict[tuple[str, str], list[OutsideStorage]] = defaultdict(list)
    for storage in outside:
        found[storage.op, storage.reason].append(storage)
    groups = []
    for (op, reason), storages in found.items():
        peak = _peak(storages)
        text = f"outside: {op}, {counted(len(storages), 'storage')}, {format_bytes(peak)} at their peak: {reason}"
        groups.append((peak, text))
    return groups


def _peak(storages: Sequence[OutsideStorage]) -> int:
    changes = sorted(
        [(s.start, 1, s.nbytes) for s in storages] + [(s.end, 0, -s.nbytes) for s in storages],
    )
    now = most = 0
    for _, _, change in changes:
        now += change
        most = max(most, now)
    return most
