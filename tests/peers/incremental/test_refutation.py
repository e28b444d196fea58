import random

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from example_counts import examples
from neaptide.outcome import LimitGuard, Limits
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.search.downsets import SearchEnd
from neaptide.schedule.order.search.lattice import Lattice, mask_of
from neaptide.schedule.order.steps import to_steps
from neaptide_peers.incremental.correspondence import Correspondence
from neaptide_peers.incremental.reachable import reachable_below
from neaptide_peers.incremental.recalling import RecallingSearch
from neaptide_peers.incremental.refutation import Refutation, recall, refutation_of, unseen_bound
from peers.incremental.random_order_edits import EDIT_KINDS, random_edit
from schedule.order.order_problems import brute_force, random_problem

KINDS = st.sampled_from(EDIT_KINDS)
MANY = 10**6


def search(problem, reverse, lower, upper, known=None):
    found = RecallingSearch(
        Lattice(to_steps(problem), reverse=reverse), lower_bytes=lower, upper_bytes=upper, recall=known
    )
    found.advance(LimitGuard(Limits()), MANY)
    return found


def lowest_peak(problem):
    return search(problem, False, 0, 1 << 60).lower_bytes


def case(seed, n, kind, in_place, mutation):
    problem = random_problem(seed, n, in_place=in_place, mutation=mutation, reach=2 + seed % 4)
    edit = random_edit(problem, kind, random.Random(seed))
    assume(edit is not None)
    return problem, edit


@given(st.integers(0, 10**6), st.integers(1, 6), st.booleans(), st.booleans(), st.booleans())
@settings(max_examples=examples(150), deadline=None)
def test_search_agrees_with_brute_force(seed, n, in_place, mutation, reverse):
    problem = random_problem(seed, n, in_place=in_place, mutation=mutation)
    best = brute_force(problem)
    found = search(problem, reverse, 0, best + 1)
    assert found.end is SearchEnd.FOUND
    assert evaluate_order(problem, found.order).peak_bytes == best
    assert search(problem, reverse, best - 1, best).end is SearchEnd.NONE_BELOW


@given(st.integers(0, 10**6), st.integers(3, 14), KINDS, st.booleans(), st.booleans(), st.booleans())
@settings(max_examples=examples(200), deadline=None)
def test_an_old_search_says_nothing_false_about_an_edit(seed, n, kind, in_place, mutation, reverse):
    problem, edit = case(seed, n, kind, in_place, mutation)
    best, then = lowest_peak(problem), lowest_peak(edit.problem)
    refutation = refutation_of(problem, search(problem, reverse, best - 1, best))
    assert unseen_bound(refutation, edit) <= then
    known = recall(refutation, edit)
    for lower in (0, then - 1, then):
        found = search(edit.problem, reverse, lower, then + 1, known)
        assert evaluate_order(edit.problem, found.order).peak_bytes == then
        assert found.lower_bytes <= then


@given(st.integers(0, 10**6), st.integers(3, 14), KINDS, st.booleans(), st.booleans(), st.booleans())
@settings(max_examples=examples(200), deadline=None)
def test_a_set_that_no_order_leaves(seed, n, kind, in_place, mutation, reverse):
    problem, edit = case(seed, n, kind, in_place, mutation)
    best, then = lowest_peak(problem), lowest_peak(edit.problem)
    order = range(n)
    hills = evaluate_order(problem, order).bytes_at
    way = list(zip(order, hills, strict=True))[:: -1 if reverse else 1]
    steps = to_steps(problem)
    guard = LimitGuard(Limits())
    assert reachable_below(best + 1, way, steps=steps, guard=guard, reverse=reverse) is None
    inside = reachable_below(best, way, steps=steps, guard=guard, reverse=reverse)
    assume(inside is not None)
    refutation = Refutation(problem, best, reverse, mask_of(sorted(inside)), {}, 0)
    assert unseen_bound(refutation, edit) <= then


@given(st.integers(0, 10**6), st.integers(3, 20), KINDS, st.booleans(), st.booleans())
@settings(max_examples=examples(100), deadline=None)
def test_what_is_left_of_equal_ops_is_found_again(seed, n, kind, mutation, reverse):
    problem, edit = case(seed, n, kind, True, mutation)
    same = Correspondence(problem, edit, reverse=reverse)
    for op, now in enumerate(edit.now_at):
        equal = now is not None and op not in same.gone
        assert same.before(0 if now is None else 1 << now) == (
            1 << op if equal else None if now is not None else 0
        )
    assert same.fresh.issuperset(edit.changed)
