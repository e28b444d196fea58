import random
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from neaptide.schedule.order.regions.segments import Segment, canonical, flatten, peak_rise
from small_orders import dominates, profile, random_chain

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
    assert peak_rise(form) == peak_rise(steps)
    valleys, hills = short[::2], short[1::2]
    bottom = max(i for i, v in enumerate(valleys) if v == min(valleys))
    assert all(a < b for a, b in pairwise(hills[:bottom]))
    assert all(a > b for a, b in pairwise(hills[bottom:]))
    assert valleys[bottom:] == sorted(set(valleys[bottom:]))
    assert valleys[: bottom + 1] == sorted(valleys[: bottom + 1], reverse=True)


@given(seeds)
def test_series_of_canonical_forms_is_the_canonical_form_of_the_whole(seed: int) -> None:
    rng = random.Random(seed)
    steps = random_chain(rng, rng.randint(0, 8))
    cut = rng.randint(0, len(steps))
    joined = canonical([*canonical(steps[:cut]), *canonical(steps[cut:])])
    assert profile(joined) == profile(canonical(steps))


@given(seeds)
def test_dominated_profiles_cost_more_in_any_sum(seed: int) -> None:
    # Dominance means that in every sum the dominating one can be run for less or the same: try it beside a context.
    rng = random.Random(seed)
    first, second = random_chain(rng, 3), random_chain(rng, 3)
    other = random_chain(rng, 3)
    if dominates(profile(first), profile(second)):
        assert _best_beside(first, other) <= _best_beside(second, other)


def _best_beside(steps: list[Segment], others: list[Segment]) -> int:
    if not steps:
        return peak_rise(others)
    if not others:
        return peak_rise(steps)
    return min(
        max(head.rise, head.delta + _best_beside(*rest), 0)
        for head, rest in ((steps[0], (steps[1:], others)), (others[0], (steps, others[1:])))
    )


def test_flatten_handles_deep_ropes() -> None:
    rope: object = 0
    for op in range(1, 5000):
        rope = (rope, op)
    assert flatten(rope) == tuple(range(5000))  # type: ignore[arg-type]
