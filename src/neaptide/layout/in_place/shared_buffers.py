"""Results on top of operands, as a layout problem: one buffer for both."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from neaptide.errors import VerifyError
from neaptide.layout.from_schedule import OUTSIDE, ScheduleBuffers
from neaptide.layout.in_place.choices import InPlaceChoice
from neaptide.layout.problem import Buffer, LayoutProblem


def share(buffers: ScheduleBuffers, choices: Iterable[InPlaceChoice]) -> ScheduleBuffers:
    """The layout problem in which chosen results have the buffers of their operands. O(buffers + choices).

    A shared buffer has the name and the kind of the first of its instances, the largest size and alignment, and lives
    from the first to the end of the last; what lies on a donated input needs no buffer at all.

    Args:
        buffers: of the schedule that the choices were made for.
        choices: as `choose_in_place` gives them.

    Raises:
        VerifyError: a choice whose instances do not meet in time, or that would put a buffer of the arena and bytes
            outside in one place.
    """
    members = list(buffers.problem.buffers)
    place = list(buffers.buffer_of)
    head = list(range(len(members)))
    callers = {index for index, instance in enumerate(buffers.liveness.instances) if instance.is_resident}
    for choice in sorted(choices, key=lambda c: c.made):
        over, under = place[choice.made], place[choice.taken]
        if choice.taken in callers:
            callers.add(choice.made)
        if over == under == OUTSIDE:
            continue
        if over == OUTSIDE or (under == OUTSIDE and choice.taken not in callers):
            raise VerifyError(f"{_describe(buffers, choice)}: one of them is in the arena, the other is not")
        if under != OUTSIDE:
            members[under] = _merged(members[under], members[over], _describe(buffers, choice))
        head[over] = under
        place[choice.made] = under
    kept = [index for index, first in enumerate(head) if first == index]
    number = {old: new for new, old in enumerate(kept)}
    return replace(
        buffers,
        problem=LayoutProblem(tuple(members[index] for index in kept), buffers.problem.name),
        buffer_of=tuple(OUTSIDE if index == OUTSIDE else number[index] for index in place),
    )


def _merged(first: Buffer, second: Buffer, what: str) -> Buffer:
    if not first.start <= second.start < first.end:
        raise VerifyError(
            f"{what}: the result begins at {second.start}, the operand's bytes end at {first.end}"
        )
    if first.gaps or second.gaps or first.offset is not None or second.offset is not None:
        raise VerifyError(f"{what}: buffers with gaps or fixed places are not shared")
    return replace(
        first,
        end=max(first.end, second.end),
        nbytes=max(first.nbytes, second.nbytes),
        alignment=max(first.alignment, second.alignment),
    )


def _describe(buffers: ScheduleBuffers, choice: InPlaceChoice) -> str:
    storages = (buffers.liveness.instances[i].storage for i in (choice.made, choice.taken))
    return "storage {} in the bytes of storage {}".format(*storages)
