"""Pieces of a pool, beside a set of bytes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from neaptide.copy_engines.copy_engine import Extents
from support.drawn import examples


def bytes_of(extents):
    return [n for extent in extents for n in range(extent.start, extent.end)]


@settings(max_examples=examples(300), deadline=None)
@given(st.data())
def test_there_is_room_as_long_as_enough_bytes_are_free(data):
    capacity = data.draw(st.integers(0, 40))
    pool, free, taken = Extents(capacity), set(range(capacity)), []
    for _ in range(data.draw(st.integers(0, 25))):
        if taken and data.draw(st.booleans()):
            extents = taken.pop(data.draw(st.integers(0, len(taken) - 1)))
            pool.give_back(extents)
            free |= set(bytes_of(extents))
        else:
            nbytes = data.draw(st.integers(0, 20))
            extents = pool.take(nbytes)
            assert (extents is None) == (nbytes > len(free))
            if extents is not None:
                found = bytes_of(extents)
                assert len(found) == nbytes
                assert set(found) <= free
                assert len(set(found)) == nbytes
                free -= set(found)
                taken.append(extents)
        assert pool.free_bytes == len(free)
    for extents in taken:
        pool.give_back(extents)
    whole = pool.take(capacity)
    assert [(e.start, e.nbytes) for e in whole] == ([(0, capacity)] if capacity else [])
