"""What is told about an arena."""

from __future__ import annotations

from dataclasses import replace

from neaptide.report.arena_text import arena_lines
from neaptide.runtime.arena.plan import ArenaReport, OutsideStorage

MIB = 2**20
REPORT = ArenaReport(
    arena_bytes=10 * MIB,
    live_bytes=9 * MIB,
    certificate="bound",
    written=12,
    copied=2,
    copied_bytes=3 * MIB,
    copy_seconds=0.001,
    step_seconds=0.1,
    outside=(
        OutsideStorage("aten.convolution.default", "c", MIB, 0, 3, "no overload"),
        OutsideStorage("aten.convolution.default", "d", 2 * MIB, 2, 4, "no overload"),
        OutsideStorage("aten.convolution.default", "e", 2 * MIB, 4, 5, "no overload"),
        OutsideStorage("aten.sum.default", "loss", 4, 4, 5, "it is handed back"),
    ),
    outside_peak_bytes=3 * MIB,
    resident_bytes=MIB,
    peak_bytes=14 * MIB,
    peak_with_workspace_bytes=15 * MIB,
    plain_peak_bytes=13 * MIB,
    predicted_reserved_bytes=2 << 20,
)


def test_everything_is_told_with_its_bytes():
    assert arena_lines(REPORT) == (
        "one block of 10.00 MiB for 9.00 MiB live (bound); 3.00 MiB outside at most, 1.00 MiB more with workspace",
        "predicted reserved: 2.00 MiB, by PyTorch's caching allocator for the same results (simulated)",
        "12 results written in place, 2 results copied in, 3.00 MiB a step (predicted 1 ms, 1.0% of the step)",
        "outside: aten.convolution.default, 3 storages, 3.00 MiB at their peak: no overload",
        "outside: aten.sum.default, 1 storage, 4 B at their peak: it is handed back",
    )


def test_without_copies_and_without_time():
    lines = arena_lines(replace(REPORT, copied=0, copied_bytes=0, step_seconds=0.0, outside=()))
    assert lines[2:] == ("12 results written in place, no result copied in",)
    assert lines[1].startswith("predicted reserved: 2.00 MiB, by")


def test_few_kinds_are_named_and_the_others_counted():
    many = tuple(OutsideStorage(f"aten.op{k}.default", "v", k + 1, 0, 1, "why") for k in range(9))
    lines = arena_lines(replace(REPORT, outside=many))
    assert "aten.op8" in lines[3]
    assert lines[-1] == "outside: 3 more kinds of storages"
