"""When the copies of a plan run, for its reader."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable

from neaptide.ir.schedule import HostStay, Schedule, StepKind
from neaptide.planner.offload.host import HostSpace
from neaptide.plans import CopiesRecord, StayCopies, TimedCopy
from neaptide.schedule.problem import StepProblem
from neaptide.schedule.timeline import simulate_timeline


def copies_record(
    step: StepProblem, schedule: Schedule, stays: Iterable[HostStay], host: HostSpace
) -> CopiesRecord:
    """The copies of a schedule beside its operations, as the timeline plays them. O(steps).

    Args:
        step: the program.
        schedule: with its stays.
        stays: the same by position, in the order in which they are stored.
        host: whose links make the copies.
    """
    played = simulate_timeline(step, schedule, host.out, host.back)
    # An instance makes its trips one behind the other, in the order of its stays.
    copies: dict[tuple[int, int, StepKind], deque[TimedCopy]] = defaultdict(deque)
    for copy in played.copies:
        timed = TimedCopy(copy.issued_s, copy.start_s, copy.end_s)
        copies[*copy.key, copy.kind].append(timed)
    rows = tuple(
        StayCopies(
            step.storage_names[stay.storage],
            step.moved_bytes(stay.storage),
            None if stay.begins_before else copies[stay.storage, stay.occurrence, StepKind.STORE].popleft(),
            None if stay.ends_behind else copies[stay.storage, stay.occurrence, StepKind.LOAD].popleft(),
        )
        for stay in stays
    )
    waits = tuple((wait.begin_s, wait.begin_s + wait.seconds) for wait in played.waits)
    return CopiesRecord(rows, waits)
