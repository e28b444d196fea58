"""Stays of a plan in a graph that has the same nodes, some of whose results lie in other storages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from neaptide.ir.edit import Edited
from neaptide.ir.graph import Graph
from neaptide.ir.schedule import HostStay
from neaptide.planner.offload.carried import Carried, OffloadPlan, gaps_like
from neaptide.planner.offload.host import HostSpace
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.problem import StepProblem


def stays_after(graph: Graph, edited: Edited, stays: Iterable[HostStay]) -> tuple[HostStay, ...]:
    """Stays, each of the storage in which its bytes lie after a change. O(values + stays x log stays).

    A result on top of an operand is made when the operand is no longer needed. So the stays of both are apart in time,
    and together they are stays of one storage.

    Args:
        graph: before the change.
        edited: what the change makes of it: every storage that stays is still there, or is one with another; both are made
            once then.
        stays: in a sequence of the graph.
    """
    moved = {
        old: storage
        for value in edited.graph.values
        if (before := edited.value_of[value.id]) >= 0
        and (old := graph.values[before].storage) is not None
        and (storage := value.storage) is not None
    }
    found = [replace(stay, storage=moved[stay.storage]) for stay in stays]
    return tuple(sorted(found, key=lambda stay: (stay.store_behind, stay.storage, stay.occurrence)))


def placed_again(
    step: StepProblem,
    sequence: Sequence[int],
    stays: Iterable[HostStay],
    host: HostSpace,
    budget_bytes: int,
    strategy: str,
) -> OffloadPlan:
    """A sequence with the same stays, those left out that need not leave any more, and the others placed anew.

    Args:
        step: the program.
        sequence: node ids in running order.
        stays: legal in it.
        host: room there, and links.
        budget_bytes: highest bytes on the device; no lower than the peak with all of these stays.
        strategy: name of what found the sequence.
    """
    evaluator = Evaluator(step, sequence)
    known = tuple(stays)
    between = frozenset(stay.storage for stay in known if stay.begins_before or stay.ends_behind)
    host = replace(host, between=between)
    wanted = [
        (stay.storage, stay.store_behind, stay.back_before)
        for stay in known
        if not (stay.begins_before or stay.ends_behind)
    ]
    carried = Carried(evaluator, host, budget_bytes, gaps_like(wanted, host.gaps(evaluator)))
    carried.drop_needless()
    return carried.plan(strategy)
