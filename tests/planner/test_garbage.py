"""How often garbage is looked for, during and after."""

import gc

import pytest

from neaptide.planner.garbage import collected_rarely


@pytest.fixture
def thresholds():
    before = gc.get_threshold()
    yield gc.set_threshold
    gc.set_threshold(*before)


@pytest.mark.parametrize(("before", "meanwhile"), [(700, 50_000), (50_000, 50_000), (90_000, 90_000), (0, 0)])
def test_it_is_looked_for_rarely_and_then_as_before(thresholds, before, meanwhile):
    thresholds(before, 7, 9)
    with collected_rarely():
        assert gc.get_threshold() == (meanwhile, 7, 9)
    assert gc.get_threshold() == (before, 7, 9)


def test_a_search_that_fails_leaves_it_as_it_was(thresholds):
    @collected_rarely()
    def fails():
        raise KeyError

    thresholds(700, 7, 9)
    with pytest.raises(KeyError):
        fails()
    assert gc.get_threshold() == (700, 7, 9)


def test_searches_that_overlap_leave_it_as_it_was_before_the_first(thresholds):
    thresholds(700, 7, 9)
    first, second = collected_rarely(), collected_rarely()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert gc.get_threshold() == (50_000, 7, 9)
    second.__exit__(None, None, None)
    assert gc.get_threshold() == (700, 7, 9)
