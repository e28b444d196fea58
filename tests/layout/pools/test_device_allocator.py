"""Rules of PyTorch's allocator, against numbers worked out by hand and numbers that PyTorch's own tests demand."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caching_play import PlainAllocator
from neaptide.errors import LayoutProblemError, UsageError
from neaptide.layout.pools.device_allocator import AllocatorBytes, AllocatorSettings, CachingAllocator
from together import together

KIB = 1 << 10
MIB = 1 << 20


def allocator(**settings):
    return CachingAllocator(AllocatorSettings(**settings))


@together(
    ("nbytes", "allocated", "reserved"),
    [
        (1, 512, 2 * MIB),
        (512, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB - 511, 10 * MIB, 10 * MIB),
        (10 * MIB + 1, 10 * MIB + 512, 12 * MIB),
        (11 * MIB, 12 * MIB, 12 * MIB),  # the rest is not above 1 MiB, so it stays with the block
        (11 * MIB - 512, 11 * MIB - 512, 12 * MIB),
        (3 << 40, 3 << 40, 3 << 40),
    ],
)
def test_rounding_and_segment_of_one_request(nbytes, allocated, reserved):
    a = allocator()
    assert a.allocate(0, nbytes)
    assert a.bytes == AllocatorBytes(reserved, allocated, nbytes)
    a.free(0)
    assert a.bytes == AllocatorBytes(reserved, 0, 0)
    assert a.segments == a.segments_made == 1


def test_small_requests_share_segments_of_2_mib():
    a = allocator()
    for number in range(4096):
        a.allocate(number, 512)
    assert a.bytes.reserved == 2 * MIB
    a.allocate(4096, 1)
    assert (a.bytes.reserved, a.segments) == (4 * MIB, 2)


def test_the_smallest_free_block_that_fits_is_taken():
    a = allocator()
    for number, kib in enumerate((100, 1, 64, 1, 80, 1)):
        a.allocate(number, kib * KIB)
    for number in (0, 2, 4):
        a.free(number)
    a.allocate(6, 64 * KIB)  # the second hole, which it fills
    a.allocate(7, 80 * KIB)  # the third
    a.allocate(8, 100 * KIB)  # the first: nothing of it was cut off
    a.allocate(9, (2048 - 247) * KIB // 2)
    a.allocate(10, (2048 - 247) * KIB // 2)
    assert (a.bytes.reserved, a.bytes.allocated) == (2 * MIB, 2 * MIB)


def test_neighbours_merge_within_a_segment_only():
    a = allocator()
    for number in range(4):
        a.allocate(number, MIB)
    assert a.segments == 2
    for number in range(4):
        a.free(number)
    for number in range(3):
        a.allocate(number, 700 * KIB)
    # 700 KiB leave 1,348 KiB of a segment, room for one more; across the border nothing merges.
    assert (a.segments, a.bytes.allocated) == (2, 2100 * KIB)


def test_a_large_request_does_not_use_free_blocks_of_the_small_pool():
    a = allocator()
    a.allocate(0, MIB)
    a.free(0)
    a.allocate(0, MIB + 512)
    assert a.bytes.reserved == 22 * MIB


@together(
    ("nbytes", "segments", "reserved", "kept", "expandable"),
    [
        (512, 1, 2 * MIB, 2 * MIB, 2 * MIB),
        (MIB, 2, 4 * MIB, 2 * MIB, 4 * MIB),
        (MIB + 512, 1, 20 * MIB, 20 * MIB, 20 * MIB),
        (10 * MIB - 512, 2, 40 * MIB, 20 * MIB, 40 * MIB),
        (10 * MIB + 512, 3, 36 * MIB, 12 * MIB, 40 * MIB),
    ],
)
def test_a_chain_of_copies_reserves_what_pytorch_demands(nbytes, segments, reserved, kept, expandable):
    """PyTorch's own test on CUDA: `b = a.clone()`, then five times `b = b.clone() + 1`, in an empty pool.

    The numbers are those of `test_graph_memory_stats_and_use_result_after_destroy_graph` in test/test_cuda.py, which
    runs with expandable segments, too.
    """
    for a, wanted in ((allocator(), reserved), (allocator(expandable_segments=True), expandable)):
        a.allocate(0, nbytes)
        for turn in range(5):
            old, copy, new = 2 * turn, 2 * turn + 1, 2 * turn + 2
            a.allocate(copy, nbytes)
            a.allocate(new, nbytes)
            a.free(copy)
            a.free(old)
        assert (a.bytes.reserved, a.bytes.allocated) == (wanted, nbytes)
        if not a.settings.expandable_segments:
            assert a.segments_made == segments
            a.empty_cache()
            assert a.bytes.reserved == kept


def test_unused_segments_are_given_back_when_the_device_is_full():
    a = allocator(capacity_bytes=64 * MIB)
    a.allocate(0, 30 * MIB)
    a.allocate(1, 30 * MIB)
    assert not a.allocate(2, 31 * MIB)
    assert (a.retries, a.bytes.allocated) == (1, 60 * MIB)
    a.free(0)
    a.allocate(9, 1)
    assert a.bytes.reserved == 62 * MIB
    assert a.allocate(2, 31 * MIB)
    assert (a.retries, a.bytes.reserved, a.segments) == (2, (30 + 32 + 2) * MIB, 3)


def test_a_block_in_use_pins_its_segment():
    a = allocator(capacity_bytes=64 * MIB)
    a.allocate(0, 60 * MIB)
    a.free(0)
    a.allocate(9, 2 * MIB)
    assert not a.allocate(1, 59 * MIB)  # 58 MiB are free, in one piece, and can go to nobody
    assert a.bytes == AllocatorBytes(60 * MIB, 2 * MIB, 2 * MIB)


def test_a_limit_to_splits_as_in_pytorchs_test():
    """`test_max_split_expandable` of test/test_cuda.py, with its segments that do not expand."""
    a = allocator(capacity_bytes=120 * MIB, max_split_bytes=40 * MIB)
    for number in range(3):
        assert a.allocate(number, 40 * MIB)
    assert not a.allocate(3, 40 * MIB)
    for number in range(3):
        a.free(number)
    assert a.allocate(3, 120 * MIB)
    assert a.segments == 1


def test_blocks_above_the_limit_serve_only_requests_of_about_their_size():
    a = allocator(max_split_bytes=40 * MIB)
    a.allocate(0, 60 * MIB)
    a.free(0)
    a.allocate(1, 20 * MIB)
    assert a.bytes.reserved == 80 * MIB
    a.allocate(2, 40 * MIB)
    assert a.bytes.reserved == 120 * MIB  # 20 MiB would be left
    a.allocate(3, 40 * MIB + 512)
    assert a.bytes.reserved == 120 * MIB
    assert a.bytes.allocated == 120 * MIB


def test_only_one_large_block_is_given_back_where_that_is_enough():
    a = allocator(capacity_bytes=200 * MIB, max_split_bytes=40 * MIB)
    for number, mib in enumerate((50, 60, 70)):
        a.allocate(number, mib * MIB)
    for number in range(3):
        a.free(number)
    assert a.allocate(3, 30 * MIB)
    assert (a.retries, a.bytes.reserved) == (0, (60 + 70 + 30) * MIB)
    assert a.allocate(4, 100 * MIB)  # both that are left, together above 100 MiB
    assert (a.retries, a.bytes.reserved, a.segments) == (0, 130 * MIB, 2)


def test_an_expandable_segment_grows_at_its_end():
    a = allocator(expandable_segments=True)
    a.allocate(0, 15 * MIB)
    assert a.bytes.reserved == 20 * MIB
    a.allocate(1, 10 * MIB)  # 5 MiB are there
    assert (a.bytes.reserved, a.bytes.allocated) == (40 * MIB, 25 * MIB)
    a.free(0)
    a.allocate(2, 14 * MIB)  # into the hole, though the end has 15 MiB
    a.allocate(3, 15 * MIB)
    assert (a.bytes.reserved, a.segments) == (40 * MIB, 1)
    a.allocate(4, MIB + 1)  # the hole has 1 MiB
    assert a.bytes.reserved == 60 * MIB
    a.allocate(9, 512)
    assert (a.bytes.reserved, a.segments) == (62 * MIB, 2)
    for block in (1, 2, 3, 4, 9):
        a.free(block)
    a.allocate(5, 60 * MIB)
    assert (a.bytes.reserved, a.bytes.allocated) == (62 * MIB, 60 * MIB)


def random_stream(seed, length=120):
    """(block, bytes or 0): sizes around every limit of the rules."""
    rng = random.Random(seed)
    sizes = [1, 512, 4000, 200 * KIB, MIB, MIB + 1, 3 * MIB, 7 * MIB, 10 * MIB, 11 * MIB, 19 * MIB, 25 * MIB]
    live = []
    for number in range(length):
        if live and rng.random() < 0.5:
            yield live.pop(rng.randrange(len(live))), 0
        else:
            live.append(number)
            yield number, max(1, rng.choice(sizes) + rng.choice((0, 0, 1, -1, 512, -512)))


@given(st.integers(0, 10**9))
def test_every_counter_equals_that_of_a_plain_model(seed):
    ours, plain = allocator(), PlainAllocator()
    for block, nbytes in random_stream(seed):
        if nbytes:
            assert ours.allocate(block, nbytes)
            plain.allocate(block, nbytes)
        else:
            ours.free(block)
            plain.free(block)
        now = ours.bytes
        assert (now.reserved, now.allocated, now.requested) == plain.bytes()
    assert ours.segments == len(plain.segments)


@given(st.integers(0, 10**9), st.sampled_from([None, 40 * MIB]), st.integers(30, 200))
def test_counters_are_in_order_and_the_capacity_holds(seed, max_split_bytes, mib):
    a = allocator(capacity_bytes=mib * MIB, max_split_bytes=max_split_bytes)
    refused = set()
    for block, nbytes in random_stream(seed):
        if nbytes:
            before = a.bytes
            if not a.allocate(block, nbytes):
                refused.add(block)
                assert (a.bytes.allocated, a.bytes.requested) == (before.allocated, before.requested)
        elif block not in refused:
            a.free(block)
        assert 0 <= a.bytes.requested <= a.bytes.allocated <= a.bytes.reserved <= mib * MIB


@given(st.integers(0, 10**9))
def test_everything_freed_leaves_whole_segments(seed):
    for expandable in (False, True):
        a = allocator(expandable_segments=expandable)
        live = set()
        for block, nbytes in random_stream(seed):
            if nbytes:
                a.allocate(block, nbytes)
                live.add(block)
            else:
                a.free(block)
                live.discard(block)
        for block in live:
            a.free(block)
        reserved = a.bytes.reserved
        a.empty_cache()
        assert a.bytes == AllocatorBytes(reserved if expandable else 0, 0, 0)
        assert a.segments <= 2 * expandable


@together(
    ("settings", "message"),
    [
        ({"capacity_bytes": -1}, "cannot have -1 bytes"),
        ({"max_split_bytes": 20 * MIB - 1}, "must remain splittable"),
        ({"large_segment_bytes": 8 * MIB}, "multiple of 2 MiB of at least 10 MiB"),
        ({"large_segment_bytes": 21 * MIB}, "multiple of 2 MiB"),
        ({"expandable_segments": True, "capacity_bytes": 1}, "without a capacity"),
        ({"expandable_segments": True, "max_split_bytes": 40 * MIB}, "without a capacity"),
    ],
)
def test_settings_that_cannot_be_meant(settings, message):
    with pytest.raises(UsageError, match=message):
        AllocatorSettings(**settings)


def test_blocks_that_are_not_there_or_there_already():
    a = allocator()
    a.allocate(1, 1)
    with pytest.raises(LayoutProblemError, match="block 1 is allocated twice"):
        a.allocate(1, 1)
    with pytest.raises(LayoutProblemError, match="block 2 is freed and not in use"):
        a.free(2)
