"""Families of recompute forms for tests of many plans each: two at every run, all of them among the slow tests."""

import pytest

from neaptide_corpus.recompute_forms import FAMILIES

_AT_EVERY_RUN = {"small_ops", "layered"}  # one like a network, one at random

FAMILIES_BY_SPEED = [
    pytest.param(family, marks=() if family in _AT_EVERY_RUN else pytest.mark.slow) for family in FAMILIES
]
