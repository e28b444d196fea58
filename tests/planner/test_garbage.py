"""How often garbage is looked for, during and after."""

import gc

import pytest

from neaptide.planner.garbage import collected_rarely
from support.together import together


@pytest.fixture
def thresholds():
    before = gc.get_threshold()
    yield gc.set_threshold
    gc.set_threshold(*before)


@together("before, meanwhile", [(700, 50_000), (50_000, 50_000), (90_000, 90_000), (0, 0)])
def test_it_is_looked_for_rarely_and_after_the_last_search_as_before_the_first(thresholds, before, meanwhile):
    thresholds(before, 7, 9)
    first, second = collected_rarely(), collected_rarely()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert gc.get_threshold() == (meanwhile, 7, 9)
    assert not second.__exit__(KeyError, KeyError(), None)  # it is raised
    assert gc.get_threshold() == (before, 7, 9)
