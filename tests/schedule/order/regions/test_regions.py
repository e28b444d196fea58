import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neaptide.schedule.order.bounds.flow import lowest_downset
from neaptide.schedule.order.neutral import from_mapping
from neaptide.schedule.order.regions import dominant
from neaptide.schedule.order.regions.dominant import dominant_segments
from neaptide.schedule.order.regions.parts import PartKind, SolvedPart, degree_of, kind_of, summarise_parts
from neaptide.schedule.order.regions.reduce import reduce
from neaptide.schedule.order.regions.segments import Segment, canonical, flatten, merge_independent
from neaptide.schedule.order.steps import Coupling, Steps, to_steps
from neaptide_corpus.series_parallel import Buffers, in_tree, pumpkin, series_parallel
from schedule.order.order_problems import random_problem
from schedule.order.small_orders import (
    dominates,
    levels_of,
    linear_extensions,
    profile,
    random_chain,
    random_region,
)
from support.drawn import examples

seeds = st.integers(0, 2**32)


@given(seeds)
def test_canonical_form_is_equivalent_and_two_sided(seed: int) -> None:
    rng = random.Random(seed)
    steps = random_chain(rng, rng.randint(0, 8))
    form = canonical(steps)
    assert [op for s in form for op in flatten(s.ops)] == list(range(len(steps)))
    whole, short = profile(steps), profile(form)
    assert dominates(whole, short)
    assert dominates(short, whole)
    valleys, hills = short[::2], short[1::2]
    bottom = max(i for i, v in enumerate(valleys) if v == min(valleys))
    assert all(a < b for a, b in pairwise(hills[:bottom]))
    assert all(a > b for a, b in pairwise(hills[bottom:]))
    assert valleys[bottom:] == sorted(set(valleys[bottom:]))
    assert valleys[: bottom + 1] == sorted(valleys[: bottom + 1], reverse=True)


@settings(max_examples=examples(150))
@given(st.integers(0, 2**32))
def test_merged_profiles_dominate_every_interleaving(seed: int) -> None:
    rng = random.Random(seed)
    chains: list[list[Segment]] = []
    for length in rng.choice([(3, 3), (2, 2, 2), (4, 3), (1, 2, 3)]):
        chains.append(random_chain(rng, length, sum(map(len, chains))))
    steps = [step for chain in chains for step in chain]
    before = [() if step is chain[0] else (step.ops - 1,) for chain in chains for step in chain]
    merged = merge_independent(map(canonical, chains))
    order = [op for segment in merged for op in flatten(segment.ops)]
    assert all(b in order[: order.index(op)] for op in order for b in before[op])
    best = profile(merged)
    assert dominates(best, profile([steps[op] for op in order]))
    for other in linear_extensions(before):
        assert dominates(best, profile([steps[op] for op in other]))


@pytest.mark.parametrize("quick_states", [0, 300])
def test_dominant_segments_dominate_every_order(quick_states: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dominant, "_QUICK_STATES", quick_states)  # none: each basin begins at its bound
    for seed in range(120):
        rng = random.Random(seed)
        region = random_region(rng, rng.randint(1, 6))
        segments = dominant_segments(region, 10_000).segments
        assert segments is not None
        assert segments == canonical(segments)
        order = [item for segment in segments for item in flatten(segment.ops)]
        assert order in map(list, linear_extensions(region.predecessors))
        mine = profile(segments)
        assert dominates(mine, levels_of(region, order))
        assert all(dominates(mine, levels_of(region, o)) for o in linear_extensions(region.predecessors))


@settings(max_examples=examples(150))
@given(seeds)
def test_bytes_of_downsets_are_submodular_and_the_cut_finds_the_lowest(seed: int) -> None:
    rng = random.Random(seed)
    region = random_region(rng, rng.randint(1, 6))
    downsets = {frozenset(o[:k]) for o in linear_extensions(region.predecessors) for k in range(len(o) + 1)}
    level = {downset: region.bytes_after(downset) for downset in downsets}
    for one in downsets:
        for two in downsets:
            assert level[one | two] + level[one & two] <= level[one] + level[two]
    lowest = min(level.values())
    large = lowest_downset(region)
    small = lowest_downset(region, largest=False)
    for downset in downsets:
        if level[downset] == lowest:
            assert small <= downset <= large
    assert level[large] == level[small] == lowest


def test_trees_and_buffers_per_edge_are_branches_without_states() -> None:
    for form in (in_tree(60, 0), series_parallel(60, 3, 0, buffers=Buffers.PER_EDGE)):
        parts = reduce(to_steps(from_mapping(form))).stats.parts
        assert {(part.kind, part.states) for part in parts} == {(PartKind.BRANCHES, 0)}


def test_a_pumpkin_is_one_with_its_chains_and_states() -> None:
    stats = reduce(to_steps(from_mapping(pumpkin(5, 40, 0)))).stats
    assert stats.parts == [SolvedPart(PartKind.PUMPKIN, 38, 5, stats.states)]


def test_a_second_reduction_counts_ops_of_the_problem() -> None:
    problem = from_mapping(pumpkin(6, 120, 0))
    first = reduce(to_steps(problem), region_states=5)
    assert first.stats.skipped
    assert first.steps.op_count < problem.op_count
    again = reduce(first.steps, sizes=[len(ops) for ops in first.contents])
    assert [part.ops for part in again.stats.parts] == [118]


@settings(max_examples=examples(150), deadline=None)
@given(st.integers(0, 2**32))
def test_parts_agree_with_the_counts_of_a_reduction(seed: int) -> None:
    rng = random.Random(seed)
    problem = random_problem(
        seed, rng.randint(0, 9), in_place=rng.random() < 0.3, mutation=rng.random() < 0.3
    )
    stats = reduce(to_steps(problem)).stats
    assert sum(part.states for part in stats.parts) <= stats.states
    for part in stats.parts:
        assert 2 <= part.ops <= problem.op_count
        assert 1 <= part.degree <= part.ops
    summary = summarise_parts(stats.parts)
    assert sum(row.count for row in summary) == len(stats.parts)
    assert sum(row.states for row in summary) == sum(part.states for part in stats.parts)


def test_what_tells_a_pumpkin_from_another_region() -> None:
    chains = ((), (0,), ())
    pumpkin_region = Steps((1,) * 3, (1,) * 3, chains, (Coupling(4, (0, 2)),))
    assert (kind_of(pumpkin_region), degree_of(pumpkin_region)) == (PartKind.PUMPKIN, 2)
    for other in (
        Steps((1,) * 3, (1,) * 3, chains, (Coupling(4, (1, 2)),)),  # shared after the first step of a chain
        Steps((1,) * 3, (1,) * 3, chains, (Coupling(4, (0, 2)), Coupling(4, (0, 2)))),
        Steps((1,) * 3, (1,) * 3, ((), (0,), (0,)), (Coupling(4, (0,)),)),
    ):
        assert kind_of(other) is PartKind.REGION
    assert degree_of(Steps((1,) * 4, (1,) * 4, ((), (0,), (0,), (0,)))) == 3
