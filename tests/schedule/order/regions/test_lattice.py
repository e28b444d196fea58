import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from example_counts import examples
from neaptide.schedule.order.bounds.cuts import lowest_downset
from neaptide.schedule.order.regions import lattice
from neaptide.schedule.order.regions.lattice import dominant_segments, level_of, peak_bound
from neaptide.schedule.order.regions.segments import canonical, flatten, peak_rise
from small_orders import dominates, levels_of, linear_extensions, profile, random_region

seeds = st.integers(0, 2**32)


@pytest.mark.parametrize("quick_states", [0, 3, 300])
def test_dominant_segments_dominate_every_order(quick_states: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Few quick states send even small basins through the bisection.
    monkeypatch.setattr(lattice, "DEFAULT", replace(lattice.DEFAULT, first_states=quick_states))
    for seed in range(400):
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
        assert peak_bound(region) <= peak_rise(segments)


@settings(max_examples=examples(150))
@given(seeds)
def test_bytes_of_downsets_are_submodular_and_the_cut_finds_the_lowest(seed: int) -> None:
    rng = random.Random(seed)
    region = random_region(rng, rng.randint(1, 6))
    downsets = {frozenset(o[:k]) for o in linear_extensions(region.predecessors) for k in range(len(o) + 1)}
    level = {downset: level_of(region, set(downset)) for downset in downsets}
    for one in downsets:
        for two in downsets:
            assert level[one | two] + level[one & two] <= level[one] + level[two]
    lowest = min(level.values())
    large = lowest_downset(region.delta, region.predecessors, region.couplings)
    small = lowest_downset(region.delta, region.predecessors, region.couplings, largest=False)
    for downset in downsets:
        if level[downset] == lowest:
            assert small <= downset <= large
    assert level[frozenset(large)] == level[frozenset(small)] == lowest


def test_too_many_downsets_are_refused() -> None:
    region = random_region(random.Random(3), 6)
    assert dominant_segments(region, 0).segments is None
