"""Regions that may run in parts: found once for all searches of a program."""

from __future__ import annotations

import pytest

from neaptide.budget import Budget
from neaptide.outcome import Limits
from neaptide.planner.strategies.program_order import baseline
from planner.variants.variant_search import PRICING, choices_of_all, searched
from support.catalogue import graph_of
from support.steps import rows_step


@pytest.fixture(scope="module")
def graph():
    return graph_of(rows_step)


def labels(graph, known, limits):
    longest = 1000 * baseline(PRICING.problem(graph)).seconds
    found = searched(graph, Budget("min", latency=longest), limits, choices=known)
    return [tried.label for tried in found.tried]


def test_they_are_found_once(graph):
    known = choices_of_all()
    begun = known.begun(graph)
    found = known.after(begun)
    assert found
    assert known.begun(graph) is begun
    assert known.after(begun) is found


def test_what_one_search_found_another_finds_too(graph):
    known, limits = choices_of_all(), Limits(None, 200)
    first = labels(graph, known, limits)
    assert any("parts" in label for label in first)
    assert labels(graph, known, limits) == first
