"""The proof of a best order, in a form that survives edits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from neaptide.outcome import LimitGuard, Limits
from neaptide.schedule.order.bounds.lower import cut_bound, op_bounds, per_op_bound
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.problem import OrderProblem
from neaptide.schedule.order.search.downsets import SearchEnd
from neaptide.schedule.order.search.lattice import Lattice, mask_of
from neaptide.schedule.order.steps import to_steps
from neaptide_peers.incremental.reachable import reachable_below
from neaptide_peers.incremental.recalling import RecallingSearch, take_turns
from neaptide_peers.incremental.refutation import Refutation, refutation_of
from neaptide_peers.incremental.settings import SETTINGS


@dataclass(frozen=True, slots=True)
class Settled:
    """An ordered problem, with what its proof can tell about edits of it.

    Attributes:
        problem: storages and ops.
        order: of it.
        peak_bytes: of the order.
        order_lower_bound_bytes: no order has a lower peak.
        witness: an op whose min-cut bound is the peak; None if there is none.
        refutation: that no order is below the peak; None where a cut says so, or nothing does.
    """

    problem: OrderProblem
    order: tuple[int, ...]
    peak_bytes: int
    order_lower_bound_bytes: int
    witness: int | None
    refutation: Refutation | None


def settle(
    problem: OrderProblem,
    order: Sequence[int],
    lower_bytes: int,
    *,
    limits: Limits | None = None,
    states: int | None = None,
) -> Settled:
    """Prove once more that an order is a best one, in a form that survives edits.

    Where the min-cut bound meets the peak there is nothing to keep: one cut says so again after an edit. Else a set
    of ops is looked for that no order below the peak can leave, by cuts, then by a search that starts just below the
    peak: with the proof known to exist, that takes far fewer states than to find it.

    Args:
        problem: storages and ops.
        order: of it.
        lower_bytes: no order has a lower peak.
        limits: of time and work; a unit of work is a state or a cut.
        states: of the search in each direction; None for the usual number.

    Raises:
        VerifyError: `order` is not one of the problem.
    """
    guard = LimitGuard(limits or Limits())
    peak = evaluate_order(problem, order).peak_bytes
    cut = cut_bound(to_steps(problem), order, floor=per_op_bound(problem), guard=guard)
    witness, refutation = None, None
    if cut.nbytes >= peak:
        bounds = op_bounds(problem)
        witness = cut.op if cut.op is not None or peak not in bounds else bounds.index(peak)
    elif lower_bytes >= peak:
        refutation = _by_cuts(problem, order, peak, guard) or _by_search(
            problem, peak, guard, 3 * SETTINGS.proof_states if states is None else states
        )
    return Settled(problem, tuple(order), peak, min(lower_bytes, peak), witness, refutation)


def _by_cuts(problem: OrderProblem, order: Sequence[int], peak: int, guard: LimitGuard) -> Refutation | None:
    steps = to_steps(problem)
    hills = evaluate_order(problem, order).bytes_at
    for reverse in (False, True):
        way = list(zip(order, hills, strict=True))[:: -1 if reverse else 1]
        inside = reachable_below(peak, way, steps=steps, guard=guard, reverse=reverse)
        if inside is not None:
            return Refutation(problem, peak, reverse, mask_of(sorted(inside)), {}, 0)
    return None


def _by_search(problem: OrderProblem, peak: int, guard: LimitGuard, states: int) -> Refutation | None:
    searches = [
        RecallingSearch(Lattice(to_steps(problem), reverse=reverse), lower_bytes=peak - 1, upper_bytes=peak)
        for reverse in (False, True)
    ]
    done = take_turns(searches, guard, states)
    return refutation_of(problem, done) if done is not None and done.end is SearchEnd.NONE_BELOW else None
