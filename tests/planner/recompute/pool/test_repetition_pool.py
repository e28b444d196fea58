from __future__ import annotations

import random
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neaptide.planner.recompute.pool.pool import FIRST, RepetitionPool
from neaptide.planner.recompute.pool.prices import RepetitionPrices
from neaptide.planner.recompute.pool.program import RepetitionProgram
from neaptide.planner.recompute.units import stage_units
from neaptide.planner.strategies import program_order
from neaptide.schedule.evaluate import Evaluator
from planner.planner_problems import random_chain, random_instance
from support.together import together


def all_items(units):
    return [(stage, u) for u, unit in enumerate(units.units) for stage in range(unit.first, unit.last + 1)]


def drawn(seed, count, *, chained):
    step = random_chain(seed, count // 2 + 1) if chained else random_instance(seed, count)
    return step, stage_units(step, tuple(range(step.node_count)))


def values_of(pool, chosen):
    """Items as chosen, and the least stretches that they call for."""
    values = np.zeros(pool.variables + 1)
    values[: len(pool.items)] = [item in chosen for item in pool.items]
    for _ in pool.implications:
        before = values.copy()
        for terms, right in pool.implications:
            over = sum(factor * values[variable] for factor, variable in terms) - right
            if over > 0:
                values[terms[-1][1]] += over
        if (values == before).all():
            break
    return values


def sequence_of(units, chosen):
    by_stage = [sorted(u for stage, u in chosen if stage == s) for s in range(units.stages)]
    sequence = []
    for stage, inside in enumerate(by_stage):
        sequence.extend(units.units[u].creator for u in inside)
        sequence.extend(units.order[stage : stage + 1])
    return sequence


@given(st.integers(0, 10**6), st.integers(3, 12), st.booleans(), st.data())
@settings(deadline=None)
def test_bytes_of_a_choice_are_those_of_its_sequence(seed, count, chained, data):
    step, units = drawn(seed, count, chained=chained)
    every = all_items(units)
    pool_items = data.draw(st.lists(st.sampled_from(every), unique=True, max_size=12)) if every else []
    chosen = {item for item in pool_items if data.draw(st.booleans())}
    pool = RepetitionPool(units, pool_items)
    profile = pool.profile(values_of(pool, chosen))
    there = [k for k, moment in enumerate(pool.moments) if moment[1] == FIRST or moment in chosen]
    expected = Evaluator(step, sequence_of(units, chosen)).bytes
    assert profile[there].tolist() == expected.tolist()


@together("seed", range(8))
def test_the_best_choice_in_whole_numbers_is_that_of_all_choices(seed):
    step = random_chain(seed, 4)
    units = stage_units(step, tuple(range(step.node_count)))
    every = all_items(units)
    random.Random(seed).shuffle(every)
    items = sorted(every[:9])
    budget = int(0.8 * program_order.baseline(step).peak_with_workspace_bytes)
    best = min(
        (
            sum(units.units[u].seconds for _, u in chosen)
            for size in range(len(items) + 1)
            for chosen in combinations(items, size)
            if Evaluator(step, sequence_of(units, chosen)).peak <= budget
        ),
        default=None,
    )
    pool = RepetitionPool(units, items)
    program = RepetitionProgram(budget, step.baseline_seconds)
    relaxed = program.relax(pool)
    nothing = np.zeros(len(items), dtype=bool)
    found = program.solve_whole(pool, nothing, nothing, nodes=10_000, time_s=None)
    if best is None:
        assert not found.is_within
    else:
        assert found.is_within
        assert found.seconds == pytest.approx(best)
        assert relaxed.seconds <= best + 1e-9


@together("seed", range(6))
def test_what_joins_the_pool_may_run_there_and_lowers_the_least_time(seed):
    step = random_chain(seed, 8)
    units = stage_units(step, tuple(range(step.node_count)))
    budget = int(0.7 * program_order.baseline(step).peak_with_workspace_bytes)
    program = RepetitionProgram(budget, step.baseline_seconds)
    items = set()
    costs = []
    for _ in range(12):
        pool = RepetitionPool(units, items)
        answer = program.relax(pool)
        costs.append(answer.seconds + 1e3 * step.baseline_seconds * answer.values[-1])
        prices = RepetitionPrices(pool, answer)
        new = [*prices.missing(6), *prices.shifted(pool.profile(answer.values).tolist())]
        assert not items & set(new)
        for stage, unit in new:
            assert units.units[unit].first <= stage <= units.units[unit].last
        if not new:
            break
        items.update(new)
    assert items
    # A larger pool has no dearer answer, but for the moments that are only watched later.
    assert costs[-1] <= costs[0] * (1 + 1e-6)


def test_offers_are_limited_and_grow_with_the_slack():
    step = random_chain(3, 10)
    units = stage_units(step, tuple(range(step.node_count)))
    budget = int(0.75 * program_order.baseline(step).peak_with_workspace_bytes)
    pool = RepetitionPool(units, [])
    answer = RepetitionProgram(budget, step.baseline_seconds).relax(pool)
    few = RepetitionPrices(pool, answer).missing(2)
    many = RepetitionPrices(pool, answer).missing(1000, 2.0)
    assert len(few) <= 2
    assert len(many) >= len(RepetitionPrices(pool, answer).missing(1000)) >= len(few)
