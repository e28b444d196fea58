"""What an arena holds and what it does not, in sentences."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from neaptide.report.cells import byte_cell, counted
from neaptide.report.document import Table
from neaptide.runtime.arena.plan import ArenaOnTheWay, ArenaReport, OutsideStorage
from neaptide.units import format_bytes, format_seconds

_MOST_GROUPS: Final = 6


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
