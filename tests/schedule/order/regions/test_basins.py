import random
from dataclasses import replace

from neaptide.schedule.order.regions import lattice
from neaptide.schedule.order.regions.basins import Basin, way_out_bound
from neaptide.schedule.order.regions.lattice import dominant_segments, level_of
from small_orders import linear_extensions, random_region


def test_bound_is_below_the_lowest_way_out() -> None:
    tight = 0
    for seed in range(400):
        region = random_region(random.Random(seed), random.Random(seed).randint(1, 6))
        lowest = _lowest_way_out(region)
        if lowest is None:
            continue
        couplings = [(nbytes, list(items)) for nbytes, items in region.couplings]
        basin = Basin(
            list(region.rise), list(region.delta), [list(b) for b in region.predecessors], couplings
        )
        bound = way_out_bound(basin, 0)
        assert bound <= max(0, lowest)
        assert way_out_bound(basin, bound + 5) >= bound + 5
        tight += bound == max(0, lowest)
    assert tight > 150


def test_wide_basins_give_the_same_schedule_as_narrow_ones(monkeypatch) -> None:
    """Regions too large for brute force: the quick search alone, and the bound with bisection alone."""
    for seed in range(60):
        region = random_region(random.Random(seed), 11)
        monkeypatch.setattr(lattice, "DEFAULT", replace(lattice.DEFAULT, first_states=10**6))
        quick = dominant_segments(region, 10**6).segments
        monkeypatch.setattr(lattice, "DEFAULT", replace(lattice.DEFAULT, first_states=0))
        bisected = dominant_segments(region, 10**6).segments
        assert quick is not None
        assert bisected is not None
        assert [s[:2] for s in quick] == [s[:2] for s in bisected]


def _lowest_way_out(region: lattice.Region) -> int | None:
    best: int | None = None
    for order in linear_extensions(region.predecessors):
        hill = 0
        for length, item in enumerate(order):
            hill = max(hill, level_of(region, set(order[:length])) + region.rise[item])
            if level_of(region, set(order[: length + 1])) <= 0:
                best = hill if best is None else min(best, hill)
                break
    return best
