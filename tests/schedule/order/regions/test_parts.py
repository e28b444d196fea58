import random

from hypothesis import given, settings
from hypothesis import strategies as st

from example_counts import examples
from neaptide.schedule.order.neutral import from_mapping
from neaptide.schedule.order.regions.lattice import Region
from neaptide.schedule.order.regions.parts import PartKind, SolvedPart, degree_of, kind_of, summarise_parts
from neaptide.schedule.order.regions.reduce import reduce
from neaptide_corpus.series_parallel import Buffers, in_tree, pumpkin, series_parallel
from small_orders import random_problem


def test_trees_and_buffers_per_edge_are_branches_without_states() -> None:
    for form in (in_tree(60, 0), series_parallel(60, 3, 0, buffers=Buffers.PER_EDGE)):
        parts = reduce(from_mapping(form)).stats.parts
        assert {(part.kind, part.states) for part in parts} == {(PartKind.BRANCHES, 0)}


def test_a_pumpkin_is_one_with_its_chains_and_states() -> None:
    stats = reduce(from_mapping(pumpkin(5, 40, 0))).stats
    assert stats.parts == (SolvedPart(PartKind.PUMPKIN, 38, 5, stats.states),)


def test_a_second_reduction_counts_ops_of_the_problem() -> None:
    problem = from_mapping(pumpkin(6, 120, 0))
    first = reduce(problem, region_states=5)
    assert first.problem.op_count < problem.op_count
    again = reduce(first.problem, sizes=[len(ops) for ops in first.contents])
    assert [part.ops for part in again.stats.parts] == [118]


@settings(max_examples=examples(150), deadline=None)
@given(st.integers(0, 2**32))
def test_parts_agree_with_the_counts_of_a_reduction(seed: int) -> None:
    rng = random.Random(seed)
    problem = random_problem(rng, rng.randint(0, 9), in_place=rng.random() < 0.3, mutation=rng.random() < 0.3)
    stats = reduce(problem).stats
    branches = [part for part in stats.parts if part.kind is PartKind.BRANCHES]
    assert (len(branches), len(stats.parts)) == (stats.unions, stats.unions + stats.regions)
    assert sum(part.states for part in stats.parts) <= stats.states
    for part in stats.parts:
        assert 2 <= part.ops <= problem.op_count
        assert 1 <= part.degree <= part.ops
    summary = summarise_parts(stats.parts)
    assert sum(row.count for row in summary) == len(stats.parts)
    assert sum(row.states for row in summary) == sum(part.states for part in stats.parts)


def test_what_tells_a_pumpkin_from_another_region() -> None:
    chains = ((), (0,), ())
    pumpkin_region = Region((1,) * 3, (1,) * 3, chains, ((4, (0, 2)),))
    assert (kind_of(pumpkin_region), degree_of(pumpkin_region)) == (PartKind.PUMPKIN, 2)
    for other in (
        Region((1,) * 3, (1,) * 3, chains, ((4, (1, 2)),)),  # shared behind the first step of a chain
        Region((1,) * 3, (1,) * 3, chains, ((4, (0, 2)), (4, (0, 2)))),
        Region((1,) * 3, (1,) * 3, ((), (0,), (0,)), ((4, (0,)),)),
    ):
        assert kind_of(other) is PartKind.REGION
    assert degree_of(Region((1,) * 4, (1,) * 4, ((), (0,), (0,), (0,)))) == 3
