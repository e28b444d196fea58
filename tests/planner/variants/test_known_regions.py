"""Regions that may run in parts: found once for all searches of a program, and only where time is left to plan them."""

from __future__ import annotations

import pytest

from neaptide.budget import Budget
from neaptide.ops import registry
from neaptide.outcome import Limits
from neaptide.planner.strategies.program_order import baseline
from neaptide.planner.variants import search
from neaptide.planner.variants.choices import Choices
from variant_search import PRICING, choices_of_all, graph_of, searched
from wide_rows import rows_step


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
    assert not known.knows(begun)
    found = known.after(begun)
    assert found
    assert known.knows(begun)
    assert known.begun(graph) is begun
    assert known.after(begun) is found
    variant = known.taken(found[0], 2)
    known.after(variant)
    assert not known.knows(variant)  # another search goes on from another one


def test_what_one_search_found_another_finds_too(graph):
    known, limits = choices_of_all(), Limits(None, 600)
    first = labels(graph, known, limits)
    assert any("parts" in label for label in first)
    assert labels(graph, known, limits) == first == labels(graph, choices_of_all(), limits)


def test_the_whole_step_is_found_without_the_others_and_found_again_among_them(graph):
    known = choices_of_all()
    begun = known.begun(graph)
    whole = known.whole(begun)
    assert not known.knows(begun)
    after = known.after(begun)
    assert {choice.regions[0].kind for choice in whole} == {"step"}
    assert all(any(one is choice for one in after) for choice in whole)
    assert len(whole) == sum(choice.regions[0].kind == "step" for choice in after)


class Watched(Choices):
    """Tells what it is asked, in that order."""

    def __init__(self):
        super().__init__(registry(), lambda _: None)
        self.asked = []

    def after(self, variant):
        self.asked.append("after")
        return super().after(variant)

    def taken(self, choice, parts):
        self.asked.append("taken")
        return super().taken(choice, parts)


@pytest.mark.parametrize("is_late", [False, True])
def test_a_search_that_is_late_plans_the_whole_step_before_it_looks_further(graph, monkeypatch, is_late):
    left = 0.4 if is_late else 0.9
    monkeypatch.setattr(search._Search, "left", lambda _: left)
    monkeypatch.setattr(search, "_MOST_PLANNED", 6)
    known = Watched()
    tried = labels(graph, known, Limits(600.0, 600))
    assert known.asked[0] == ("taken" if is_late else "after")
    assert "after" in known.asked
    in_parts = [label for label in tried if "parts" in label and "longer" not in label]
    assert len(in_parts) == len(set(in_parts)) > 1  # nothing is planned twice
