from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neaptide.analysis.profile_bytes import memory_profile
from neaptide.ir.schedule import Schedule
from neaptide.schedule.changes import Insert, Move, Remove
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.problem import compile_problem
from neaptide_corpus.random_graphs import random_graph
from neaptide_corpus.training_steps import toy_registry, transformer_step
from support.drawn import graphs, node_orders


def assert_equals_reference(graph, evaluator, workspace):
    """Bytes of the evaluator are those of the slow profile of its sequence."""
    profile = memory_profile(graph, Schedule.from_nodes(graph, evaluator.sequence()), workspace=workspace)
    expected = [a + b for a, b in zip(profile.bytes_at, profile.workspace_at, strict=True)]
    assert evaluator.bytes.tolist() == expected
    assert evaluator.peak == profile.peak_with_workspace_bytes
    assert evaluator.peak_without_workspace == profile.peak_bytes
    if expected:
        assert evaluator.peak_position == profile.peak_with_workspace_step
        assert evaluator.bytes_at(len(expected) - 1) == expected[-1]


@st.composite
def sequences(draw, graph):
    """A legal order with repetitions anywhere after the first execution; versions are not looked at."""
    sequence = list(draw(node_orders(graph)))
    for node in draw(st.lists(st.sampled_from(sequence), max_size=6)) if sequence else []:
        sequence.insert(draw(st.integers(sequence.index(node) + 1, len(sequence))), node)
    return sequence


@given(st.data(), st.integers(0, 9))
def test_bytes_equal_the_reference_on_any_sequence(data, scratch):
    graph = data.draw(graphs())
    workspace = {node.id: scratch * (node.id % 3) for node in graph.nodes}
    problem = compile_problem(graph, toy_registry(), workspace=workspace)
    sequence = data.draw(sequences(graph))
    evaluator = Evaluator(problem, sequence)
    assert evaluator.sequence() == tuple(sequence)
    assert_equals_reference(graph, evaluator, workspace)


@st.composite
def changes(draw, evaluator):
    """A random change; what it moves stays after what it needs and before what needs it."""
    problem = evaluator.problem
    kind = draw(st.sampled_from(["insert", "remove", "move"]))
    anchors = evaluator.anchors()
    if kind == "remove" and anchors:
        before = draw(st.sampled_from(anchors))
        block = evaluator.repeated(before)
        return Remove((draw(st.sampled_from(sorted(set(block)))),), before)
    if kind == "move" and not anchors:
        node = draw(st.integers(0, problem.node_count - 1))
        low = max((evaluator.place_of(p) for p in problem.predecessors[node]), default=-1)
        high = min((evaluator.place_of(s) for s in problem.successors[node]), default=problem.node_count)
        places = [p for p in range(low + 1, high + 1) if p != evaluator.place_of(node)]
        if places:
            place = draw(st.sampled_from(places))
            before = problem.node_count if place == problem.node_count else int(evaluator.order[place])
            return Move((node,), before)
    before = draw(st.integers(0, problem.node_count))
    ran = [n for n in range(problem.node_count) if evaluator.place_of(n) < evaluator.place_of(before)]
    fresh = [n for n in ran if n not in evaluator.repeated(before)]
    if not fresh:
        return None
    return Insert(tuple(draw(st.sets(st.sampled_from(fresh), min_size=1, max_size=3))), before)


@given(st.data())
def test_changes_and_their_undo_equal_the_reference(data):
    graph = data.draw(graphs(min_nodes=2))
    workspace = {node.id: 5 for node in graph.nodes[::2]}
    evaluator = Evaluator(compile_problem(graph, toy_registry(), workspace=workspace))
    history = []
    for _ in range(data.draw(st.integers(1, 6))):
        change = data.draw(changes(evaluator))
        if change is None:
            continue
        history.append((evaluator.sequence(), evaluator.bytes.tolist()))
        evaluator.apply(change)
        assert_equals_reference(graph, evaluator, workspace)
        assert Evaluator(evaluator.problem, evaluator.sequence()).bytes.tolist() == evaluator.bytes.tolist()
    for sequence, held in reversed(history):
        evaluator.undo()
        assert (evaluator.sequence(), evaluator.bytes.tolist()) == (sequence, held)


def problem_of_chain():
    graph = random_graph(3, 6, views=False, in_place=False, shape_only=False, rng=False)
    return compile_problem(graph, toy_registry())


def test_repetitions_are_sorted_into_the_block_before_their_node():
    evaluator = Evaluator(problem_of_chain())
    evaluator.apply(Insert((2,), 5))
    evaluator.apply(Insert((3, 0), 5))
    assert evaluator.sequence() == (0, 1, 2, 3, 4, 0, 2, 3, 5)
    assert evaluator.repeated(5) == [0, 2, 3]
    assert evaluator.anchors() == [5]
    assert [evaluator.anchor_of(int(e)) for e in evaluator.order[5:]] == [5, 5, 5, 5]
    evaluator.apply(Remove((2,), 5))
    evaluator.apply(Insert((1,), 6))
    assert evaluator.sequence() == (0, 1, 2, 3, 4, 0, 3, 5, 1)
    assert evaluator.place_of(6) == 9


def test_impossible_changes_are_refused_and_change_nothing():
    evaluator = Evaluator(problem_of_chain())
    evaluator.apply(Insert((2,), 5))
    with pytest.raises(ValueError, match="not there"):
        evaluator.apply(Remove((3,), 5))
    with pytest.raises(ValueError, match="repetitions in front"):
        evaluator.apply(Move((5,), 1))
    assert evaluator.sequence() == (0, 1, 2, 3, 4, 2, 5)
    evaluator.undo()
    assert evaluator.sequence() == (0, 1, 2, 3, 4, 5)
    with pytest.raises(IndexError):
        evaluator.undo()
    with pytest.raises(ValueError, match="not in the sequence"):
        Evaluator(problem_of_chain(), [0, 1])


def test_a_copy_goes_its_own_way():
    graph = transformer_step(layers=2).graph
    problem = compile_problem(graph, toy_registry())
    evaluator = Evaluator(problem)
    node = next(n for n in range(problem.node_count) if problem.created[n])
    twin = evaluator.copy()
    twin.apply(Insert((node,), problem.node_count))
    assert evaluator.sequence() == tuple(range(problem.node_count))
    assert_equals_reference(graph, evaluator, {})
    assert_equals_reference(graph, twin, {})
    twin.undo()
    assert twin.bytes.tolist() == evaluator.bytes.tolist()
    with pytest.raises(IndexError):
        twin.copy().undo()
