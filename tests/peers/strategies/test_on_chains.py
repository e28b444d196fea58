"""Strategies that see a step as a chain of blocks: segments by the root, the binomial optimum, rotor, whole blocks."""

from __future__ import annotations

import math
from functools import cache
from itertools import pairwise

import pytest

from neaptide.outcome import LimitGuard, Limits
from neaptide.planner.objective import PlanningProblem
from neaptide.planner.recompute.chain.blocks import find_blocks
from neaptide.planner.recompute.chain.plans import BackwardPart, carry_out
from neaptide.planner.recompute.units import forward_units
from neaptide.planner.strategies import block_dp, program_order
from neaptide_corpus.training_steps import conv_step, transformer_step
from neaptide_peers.strategies import drop_cheap, per_block, revolve, rotor, sqrt_n
from neaptide_peers.strategies.segments import segments_table
from neaptide_peers.strategies.tables import best_of
from planner.chain_play import chain_step
from planner.planner_problems import check_sequence, compiled, least_seconds
from planner.recompute.chain.test_chain import nominal_of
from support.together import together


def solved(solver, step, budget):
    return solver.solve(PlanningProblem(step, budget), Limits()).require()


def chain_of_step(length, most=None):
    step = chain_step(length)
    return step, find_blocks(forward_units(step, range(step.node_count)), most or 4 * length)


@together(
    ("length", "starts", "sequence"),
    [
        # Blocks 0 to 2 and 3 to 5; what enters block 3 is held, and the last segment is never dropped.
        (6, (0, 3), (0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 1, 9, 10, 11)),
        (5, (0,), tuple(range(10))),
    ],
)
def test_segments_are_made_again_as_a_whole_from_what_enters_them(length, starts, sequence):
    step, chain = chain_of_step(length)
    assert len(chain.blocks) == length
    table = segments_table(chain, starts)
    guard = LimitGuard(Limits())
    assert carry_out(PlanningProblem(step, 0), chain.forward, table, guard, "test").sequence == sequence


def test_the_start_is_kept_where_no_table_is_better():
    step = chain_step(4)
    forward = forward_units(step, range(step.node_count))
    problem, tables = PlanningProblem(step, 10**9), [[BackwardPart(4, 8, frozenset())]]
    found = best_of(problem, forward, tables, LimitGuard(Limits()), "test")
    assert (found.sequence, found.strategy) == (tuple(range(8)), "test")


@together("solver", [sqrt_n, per_block, revolve, rotor, block_dp, drop_cheap])
def test_a_start_with_repetitions_is_handed_back_with_a_reason(solver):
    start = (0, 1, 2, 3, 4, 5, 0, *range(6, 12))
    outcome = solver.solve(PlanningProblem(chain_step(6), 0, start), Limits())
    assert outcome.require().sequence == start
    assert "recomputations already" in outcome.termination.detail


@together("length", [16, 36, 144])
def test_memory_is_of_the_order_of_the_root_for_one_more_forward(length):
    step = chain_step(length)
    assert program_order.baseline(step).peak_bytes >= 100 * length
    # Nothing fits into one unit, so the least memory counts.
    found = solved(sqrt_n, step, 101)
    assert found.peak_bytes <= 100 * (2 * math.isqrt(length) + 3)
    assert len(found.sequence) - step.node_count < length


def test_segments_begin_at_the_first_block_and_are_tried_once():
    _, chain = chain_of_step(100, 200)
    tried = list(sqrt_n.segmentations(chain))
    assert len(tried) == len(set(tried)) <= 24
    assert all(starts[0] == 0 and len(starts) > 1 for starts in tried)
    assert all(a < b for starts in tried for a, b in pairwise(starts))


@together(("solver", "length", "units"), [(sqrt_n, 36, (14, 18, 24, 34)), (revolve, 40, (8, 10, 14, 20, 30))])
def test_more_room_is_never_slower(solver, length, units):
    step = chain_step(length)
    found = [solved(solver, step, 100 * room) for room in units]
    assert all(plan.peak_bytes <= 100 * room for plan, room in zip(found, units, strict=True))
    seconds = [plan.seconds for plan in found]
    assert seconds == sorted(seconds, reverse=True)
    assert seconds[-1] < seconds[0]


@cache
def least_runs(blocks, places):
    """The recurrence of the binomial optimum."""
    if blocks == 1:
        return 0
    if places == 1:
        return blocks * (blocks - 1) // 2
    return min(j + least_runs(blocks - j, places - 1) + least_runs(j, places) for j in range(1, blocks))


@together("places", range(1, 8))
def test_the_closed_form_is_the_recurrence_and_its_first_place_is_optimal(places):
    for blocks in range(1, 40):
        least = revolve.least_runs(blocks, places)
        assert least == least_runs(blocks, places)
        if blocks > 1 and places > 1:
            j = revolve.first_place(blocks, places)
            assert j + revolve.least_runs(blocks - j, places - 1) + revolve.least_runs(j, places) == least


def test_few_places_reach_what_segments_cannot():
    step = chain_step(60)
    assert solved(revolve, step, 101).peak_bytes < 0.75 * solved(sqrt_n, step, 101).peak_bytes
    # Two forwards of log depth would be 60 * log2(60); one place alone takes 60 * 59 / 2.
    for solver, budget, forwards in ((revolve, 1000, 4), (rotor, 1100, 3)):
        within = solved(solver, step, budget)
        assert within.peak_bytes <= budget
        assert within.seconds < step.baseline_seconds + forwards * 60


@together("length", [2, 3, 4])
def test_rotor_agrees_with_brute_force_on_tiny_chains(length):
    step = chain_step(length, size=4)
    for budget in range(step.lower_bound_bytes, program_order.baseline(step).peak_bytes):
        best = least_seconds(step, budget, most=length)
        found = solved(rotor, step, budget)
        assert (found.peak_bytes <= budget) == (best is not None)
        assert best is None or found.seconds == pytest.approx(best)


@together("share", [0.75, 0.6, 0.5])
@together("made", [transformer_step(layers=8), conv_step(blocks=8, batch=32)], ids=["t", "c"])
def test_rotor_fits_and_is_faster_than_whole_segments(made, share):
    step = compiled(made)
    before = program_order.baseline(step)
    budget = step.persistent_bytes + int(share * (before.peak_bytes - step.persistent_bytes))
    found = solved(rotor, step, budget)
    check_sequence(made.graph, found, None, made.registry)
    assert found.peak_with_workspace_bytes <= budget
    for other in (per_block, sqrt_n):
        assert found.rank(budget) <= solved(other, step, budget).rank(budget)


def test_the_search_ends_at_the_largest_budget_that_fits():
    step = compiled(transformer_step(layers=6))
    peak = program_order.baseline(step).peak_bytes
    budget = step.persistent_bytes + (peak - step.persistent_bytes) // 2
    nominal = nominal_of(step, budget)
    fitting = [p for p in rotor.fitting(nominal) if p.peak_with_workspace_bytes <= budget]
    assert fitting[-1].seconds == min(p.seconds for p in fitting)
    asked = nominal.plan(1.0)
    assert asked is not None
    assert fitting[-1].seconds <= asked.seconds or asked.peak_with_workspace_bytes > budget


def test_every_layer_runs_forward_twice():
    made = transformer_step(layers=12)
    step = compiled(made)
    before = program_order.baseline(step)
    outcome = per_block.solve(PlanningProblem(step, step.persistent_bytes), Limits())
    assert outcome.termination.detail.endswith(" blocks")
    found = outcome.require()
    check_sequence(made.graph, found, None, made.registry)
    assert found.peak_bytes - step.persistent_bytes < 0.75 * (before.peak_bytes - step.persistent_bytes)
    forward = [n for n in range(step.node_count) if step.phases[n] == "forward"]
    counts = [found.sequence.count(n) for n in forward]
    assert max(counts) == 2
    # The last layer and what no backward reads (the down projections, the loss) run once.
    assert 0.6 < sum(c == 2 for c in counts) / len(counts) < 1.0
    assert found.seconds < before.seconds + sum(step.seconds[n] for n in forward)
