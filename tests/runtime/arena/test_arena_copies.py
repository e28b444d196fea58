"""Which copies are worth their time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from neaptide.cost.presets import get_device
from neaptide.runtime.arena.copies import Span, choose_copies, copy_seconds

DEVICE = get_device("a100-80g")
FOREVER = 1e9


def chosen(candidates, inside=(), outside=(), seconds=FOREVER, steps=12):
    return choose_copies(
        dict(enumerate(candidates)), inside, outside, step_count=steps, device=DEVICE, seconds=seconds
    )


def peak(inside, outside, steps):
    """Arena plus outside, by counting every step."""

    def most(spans):
        return max(sum(s.nbytes for s in spans if s.start <= now < s.end) for now in range(steps))

    return most(inside) + most(outside)


def test_the_longest_lived_come_first():
    spans = [Span(0, 2, 100), Span(0, 9, 100), Span(1, 5, 100)]
    background = [Span(0, 12, 1000)]
    one = copy_seconds(spans[:1], DEVICE)
    assert chosen(spans, background, seconds=1.5 * one) == [1]
    assert chosen(spans, background, seconds=0.5 * one) == []


def test_a_copy_that_lifts_the_peak_is_not_made():
    # At step 3 the arena is full already, and the source would lie beside its place.
    assert chosen([Span(3, 5, 100)], inside=[Span(3, 4, 50)], outside=[]) == []


def test_a_copy_below_the_peak_is_made():
    assert chosen([Span(3, 8, 100)], inside=[Span(0, 2, 500)], outside=[Span(0, 2, 500)]) == [0]


def test_time_is_calls_and_bytes_read_and_written():
    space = DEVICE.main_space
    expected = 2 * DEVICE.launch_s + 2 * 300 / space.bandwidth_bytes_per_s
    assert copy_seconds([Span(0, 1, 100), Span(0, 1, 200)], DEVICE) == expected


SPANS = st.lists(
    st.tuples(st.integers(0, 10), st.integers(1, 12), st.integers(1, 50)).map(
        lambda t: Span(t[0], min(t[0] + t[1], 12), t[2])
    ),
    max_size=6,
)


@given(SPANS, SPANS, SPANS)
def test_copies_never_lift_the_sum_of_both_peaks(candidates, inside, outside):
    picked = chosen(candidates, inside, outside)
    before = peak(inside, [*outside, *candidates], 12)
    taken = [candidates[k] for k in picked]
    left = [span for k, span in enumerate(candidates) if k not in picked]
    sources = [Span(s.start, s.start + 1, s.nbytes) for s in taken]
    assert peak([*inside, *taken], [*outside, *left, *sources], 12) <= before
