"""The F-tree: regions in parts as data, nested, legal, and the moves between choices of them."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neaptide.analysis.profile_bytes import memory_profile
from neaptide.errors import RewriteError
from neaptide.ir.schedule import Schedule
from neaptide.transform.rewrite import replay
from neaptide.transform.rules import RULES
from neaptide.transform.rules.fission import fission
from neaptide_corpus.recorded_steps import from_json
from neaptide_peers.magis.f_tree import FTree, TreeRegion, f_tree
from neaptide_peers.magis.f_tree_moves import NO_PARTS, each_alone, is_legal, next_choices
from neaptide_peers.magis.order import level_items
from neaptide_peers.magis.recorded_flat import recorded_flat_step
from peers.magis.recorded_play import perceptron


def tree_of(step, **options):
    profile = memory_profile(step.graph, Schedule.program_order(step.graph))
    return f_tree(step.graph, step.registry, [s.storage for s in profile.live_at_peak], **options)


def step_of(**sizes):
    return from_json(json.dumps(perceptron(**sizes)))


def region(members, *, axis=0, length=12, parent=-1):
    return TreeRegion(frozenset(members), {}, axis, length, frozenset(), 1.0, parent)


NESTED = FTree(
    (
        region(range(6)),
        region(range(1, 4), parent=0),
        region(range(2, 3), parent=1),
        region((4, 5), parent=0),
    ),
    ((1, 3), (2,), (), ()),
)
"""A region around two, one of which is around another."""


@settings(deadline=None)
@given(st.integers(2, 12), st.integers(1, 6), st.integers(1, 7), st.integers(1, 8))
def test_regions_are_legal_rewrites_and_nested_or_apart(batch, width, layers, levels):
    step = step_of(batch=batch, width=width, layers=layers)
    tree = tree_of(step, levels=levels)
    for index, found in enumerate(tree.regions):
        rewrite = fission(step.graph, found.members, length=found.length, parts=2, inputs=found.seeds)
        loops = [n for n in replay(step.graph, step.registry, [rewrite], RULES).graph.nodes if n.regions]
        assert len(loops) == 1
        assert found.score > 0
        assert all(found.members <= tree.regions[k].members for k in tree.around(index))
        assert set(tree.children[index]) == {
            k for k, other in enumerate(tree.regions) if other.parent == index
        }


def test_the_whole_step_along_the_batch_is_around_the_others():
    step = step_of(batch=8, width=2, layers=6)
    tree = tree_of(step)
    inside = {n.id for n in step.graph.nodes if n.source.phase != "optimizer"}
    assert tree.regions[0].members == inside
    assert tree.regions[0].length == 8
    assert len(tree.regions) > 1
    assert all(list(tree.around(k))[-1] == 0 for k in range(1, len(tree.regions)))


def test_scores_are_half_the_heat_less_what_must_be_kept():
    """By hand, of the region that all that the step makes along the batch is."""
    batch, width = 64, 2
    step = step_of(batch=batch, width=width, layers=2)
    graph = step.graph
    inside = [n for n in graph.nodes if n.source.phase != "optimizer"]
    at_peak = {graph.values[n.outputs[0]].storage for n in inside}
    made = {v for n in inside for v in n.outputs}
    handed = {v for n in inside for v in n.inputs} - made
    found = f_tree(graph, step.registry, at_peak).regions[0]
    heat = sum(graph.values[v].nbytes.evaluate() for v in made)
    kept = sum(graph.values[v].nbytes.evaluate() for v in handed)
    assert found.score == heat / 2 - kept
    # What is there at the peak anyway costs nothing to keep.
    every = at_peak | {graph.values[v].storage for v in handed}
    assert f_tree(graph, step.registry, every).regions[0].score == heat / 2


def test_at_most_so_many_regions_those_of_the_highest_scores():
    step = step_of(batch=8, width=2, layers=8)
    every = tree_of(step, levels=8)
    few = tree_of(step, levels=8, most=2)
    assert len(every.regions) > 2
    best = sorted((found.score for found in every.regions), reverse=True)[:2]
    assert sorted((found.score for found in few.regions), reverse=True) == best


def test_nothing_at_the_peak_makes_no_regions():
    step = step_of()
    assert f_tree(step.graph, step.registry, []).regions == ()


def named(tree, parts):
    found: dict[str, set] = {}
    for move, made in next_choices(tree, parts):
        found.setdefault(move, set()).add(made)
    return found


def test_moves_from_nothing_enable_leaves():
    assert named(NESTED, NO_PARTS) == {"enable": {((2, 2),), ((3, 2),)}}


def test_each_region_alone_in_fewest_parts():
    assert list(each_alone(NESTED)) == [((k, 2),) for k in range(4)]
    assert list(each_alone(FTree((region((0,), length=1), region((1,), length=7)), ((), ())))) == [((1, 7),)]


def test_moves_enable_what_is_around_lift_and_mutate():
    found = named(NESTED, ((2, 2),))
    assert found["enable"] == {((1, 2), (2, 2)), ((2, 2), (3, 2))}
    assert found["lift"] == {((1, 2),)}
    assert found["disable"] == {NO_PARTS}
    assert found["mutate"] == {((2, 3),)}


def test_only_what_has_nothing_enabled_inside_is_disabled():
    found = named(NESTED, ((1, 2), (2, 3)))
    assert found["disable"] == {((1, 2),)}
    assert found["lift"] == {((0, 2), (2, 3))}
    # 12 elements in 2 parts of 3: the outer ones may be 4, the inner ones 2 or 6.
    assert found["mutate"] == {((1, 4), (2, 3)), ((1, 2), (2, 2)), ((1, 2), (2, 6))}


def test_what_overlaps_may_not_run_in_parts_together():
    tree = FTree((region((0, 1, 2)), region((2, 3))), ((), ()))
    assert is_legal(tree, ((0, 2),))
    assert not is_legal(tree, ((0, 2), (1, 2)))
    assert named(tree, ((0, 12),)).keys() == {"disable", "mutate"}


@pytest.mark.parametrize("parts", [((0, 5),), ((0, 2), (1, 4)), ((0, 24),)])
def test_parts_divide_their_axis(parts):
    assert not is_legal(NESTED, parts)


def test_other_axes_divide_by_themselves():
    tree = FTree((region(range(4)), region((1, 2), axis=1, length=5, parent=0)), ((1,), ()))
    assert is_legal(tree, ((0, 12), (1, 5)))


@given(st.lists(st.integers(0, 50), max_size=12))
def test_every_move_ends_in_a_legal_choice(choices):
    parts = NO_PARTS
    way = [parts]
    for choice in choices:
        found = [made for _, made in next_choices(NESTED, parts)]
        parts = found[choice % len(found)]
        way.append(parts)
    assert all(is_legal(NESTED, made) for made in way)
    assert all(one != other for one, other in pairwise(way))


def test_regions_that_wait_for_one_another_have_no_order():
    """0 -> 2 and 3 -> 1, with 0 and 1 in one region, 2 and 3 in the other."""
    step = recorded_flat_step(step_of(layers=2))
    flat = replace(step, before=((), (3,), (0,), (), *step.before[4:]))
    tree = FTree((region((0, 1)), region((2, 3))), ((), ()))
    assert level_items(flat, tree, frozenset(range(4)), (0,)) == [(3, -1), (1, 0), (2, -1)]
    with pytest.raises(RewriteError, match="wait for one another"):
        level_items(flat, tree, frozenset(range(4)), (0, 1))


def test_regions_of_recorded_steps_lack_nothing():
    """Nothing stands in the way in a recorded step: there the largest region is the same."""
    step = step_of(batch=8, width=2, layers=6)
    whole = tree_of(step)
    assert tree_of(step, leaving_out=True).regions[0] == whole.regions[0]
    axes = {found.axis for found in tree_of(step, small_axes=0.9).regions}
    assert axes == {whole.regions[0].axis}
