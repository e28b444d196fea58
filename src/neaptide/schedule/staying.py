"""A sequence with stays on the host that are known by position, as a plan keeps them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from neaptide.ir.schedule import BETWEEN, HostStay
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.problem import StepProblem
from neaptide.schedule.transfers import AWAY, Transfer


def evaluated_with_stays(
    problem: StepProblem, sequence: Sequence[int], stays: Iterable[HostStay]
) -> Evaluator:
    """A sequence and its bytes, with storages away where stays say. O(length of the sequence + size of the stays).

    Args:
        problem: the program.
        sequence: node ids in running order.
        stays: legal in it.

    Raises:
        ValueError: a stay has no meaning in the sequence.
    """
    evaluator = Evaluator(problem, sequence)
    for stay in stays:
        evaluator.apply(transfer_at(evaluator, stay))
    evaluator.forget_undo()
    return evaluator


def transfer_at(evaluator: Evaluator, stay: HostStay) -> Transfer:
    """A stay as a change of the sequence that it is in. O(uses of its storage)."""
    order = evaluator.order
    made = evaluator.uses(stay.storage)[stay.occurrence].made
    store, after, before = (
        AWAY if position == BETWEEN else int(order[position])
        for position in (stay.store_behind, stay.gone_behind, stay.load_before)
    )
    return Transfer(stay.storage, made, store, after, before)
