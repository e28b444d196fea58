import random

from hypothesis import given, settings
from hypothesis import strategies as st

from example_counts import examples
from neaptide.schedule.order.regions.merge import merge_independent
from neaptide.schedule.order.regions.segments import Segment, canonical, flatten
from small_orders import dominates, linear_extensions, profile, random_chain


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
