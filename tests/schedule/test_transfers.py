from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from example_counts import examples
from neaptide.analysis.legality import check_schedule
from neaptide.analysis.profile_bytes import memory_profile
from neaptide.errors import VerifyError
from neaptide.ir.builder import GraphBuilder
from neaptide.ir.schedule import HostStay, Schedule
from neaptide.schedule.changes import Insert, Move, Remove
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.problem import compile_problem
from neaptide.schedule.replays import Replays
from neaptide.schedule.transfers import OWNED, Keep, Transfer
from neaptide_corpus.training_steps import toy_registry
from strategies import graphs
from together import together

REGISTRY = toy_registry()


def schedule_of(graph, evaluator):
    return Schedule.from_nodes(graph, evaluator.sequence()).with_stays(evaluator.stays())


def assert_equals_reference(graph, evaluator, workspace):
    schedule = schedule_of(graph, evaluator)
    check_schedule(graph, schedule, REGISTRY)
    profile = memory_profile(graph, schedule, workspace=workspace)
    expected = [a + b for a, b in zip(profile.bytes_at, profile.workspace_at, strict=True)]
    assert evaluator.bytes.tolist() == expected
    assert evaluator.peak == profile.peak_with_workspace_bytes
    assert evaluator.peak_without_workspace == profile.peak_bytes
    assert evaluator.host_bytes.tolist() == list(profile.host_bytes_at)
    assert evaluator.peak_host_bytes == profile.peak_host_bytes


@st.composite
def replayed(draw, problem):
    """An evaluator after some legal repetitions."""
    evaluator = Evaluator(problem)
    for _ in range(draw(st.integers(0, 3))):
        storage = draw(st.integers(0, len(problem.storage_bytes) - 1))
        before = draw(st.integers(0, problem.node_count))
        if not problem.is_resident[storage] and evaluator.place_of(
            problem.creator[storage]
        ) < evaluator.place_of(before):
            replays = Replays(evaluator)
            closure = replays.closure(storage, before)
            if not closure.refusal and closure.nodes:
                evaluator.apply(replays.insertion(closure, before))
    return evaluator


def is_legal(graph, evaluator, stays):
    try:
        check_schedule(graph, Schedule.from_nodes(graph, evaluator.sequence()).with_stays(stays), REGISTRY)
    except VerifyError:
        return False
    return True


@st.composite
def transfers(draw, evaluator):
    """Any transfer of any instance that lasts past a step; most of the time one that is used around a gap."""
    problem = evaluator.problem
    made = [
        (s, start)
        for s, spans in enumerate(evaluator.spans)
        for start, _ in spans
        if evaluator.node_of[start] == problem.creator[s]
    ]
    made += [(s, OWNED) for s, nbytes in enumerate(problem.state_bytes) if nbytes]
    if not made or len(evaluator.order) < 2:
        return None
    storage, start = draw(st.sampled_from(made))
    last = len(evaluator.order) - 1
    touched = [*sorted(evaluator.places[e] for e in evaluator.events(storage)), last]
    first = draw(st.one_of(st.sampled_from(touched), st.integers(0, last)))
    later = [p for p in touched if p > first]
    before = draw(st.one_of(st.sampled_from(later or [last]), st.integers(0, last)))
    since = 0 if start == OWNED else evaluator.places[start]
    store = draw(st.integers(min(since, first), first))
    return Transfer(storage, start, *(int(evaluator.order[p]) for p in (store, first, before)))


@settings(max_examples=examples(200))
@given(st.data(), st.integers(0, 9))
def test_bytes_with_transfers_and_repetitions_equal_the_reference(data, scratch):
    graph = data.draw(graphs(min_nodes=2))
    workspace = {node.id: scratch * (node.id % 3) for node in graph.nodes}
    evaluator = data.draw(replayed(compile_problem(graph, REGISTRY, workspace=workspace)))
    history = []
    for _ in range(data.draw(st.integers(1, 8))):
        change = data.draw(transfers(evaluator))
        there = [t for s in range(len(graph.storages)) for t in evaluator.transfers(s)]
        if there and data.draw(st.integers(0, 3)) == 0:
            change = Keep(data.draw(st.sampled_from(there)))
        if change is None:
            continue
        before = (
            evaluator.sequence(),
            evaluator.stays(),
            evaluator.bytes.tolist(),
            evaluator.host_bytes.tolist(),
        )
        try:
            evaluator.apply(change)
        except ValueError:
            assert before[1:] == (evaluator.stays(), evaluator.bytes.tolist(), evaluator.host_bytes.tolist())
            continue
        history.append(before)
        assert_equals_reference(graph, evaluator, workspace)
    for before in reversed(history):
        evaluator.undo()
        now = (
            evaluator.sequence(),
            evaluator.stays(),
            evaluator.bytes.tolist(),
            evaluator.host_bytes.tolist(),
        )
        assert now == before


def told(evaluator):
    return (
        evaluator.sequence(),
        evaluator.stays(),
        evaluator.bytes.tolist(),
        evaluator.host_bytes.tolist(),
        evaluator.peak,
    )


@settings(max_examples=examples(200))
@given(st.data())
def test_repetitions_and_stays_have_changes_that_take_them_back(data):
    """`Remove` is the inverse of `Insert`, and `Keep` that of `Transfer`: as changes of their own, not by undoing."""
    graph = data.draw(graphs(min_nodes=2))
    evaluator = data.draw(replayed(compile_problem(graph, REGISTRY)))
    replays = Replays(evaluator)
    for _ in range(data.draw(st.integers(1, 6))):
        before = told(evaluator)
        change = data.draw(transfers(evaluator))
        if change is None or data.draw(st.booleans()):
            storage, anchor = (
                data.draw(st.integers(0, len(some) - 1)) for some in (graph.storages, graph.nodes)
            )
            creator = evaluator.problem.creator[storage]
            if creator < 0 or evaluator.place_of(creator) >= evaluator.place_of(anchor):
                continue
            closure = replays.closure(storage, anchor)
            if closure.refusal or not closure.nodes:
                continue
            change, inverse = replays.insertion(closure, anchor), Remove(closure.nodes, anchor)
        else:
            inverse = Keep(change)
        try:
            evaluator.apply(change)
        except ValueError:
            continue
        assert told(evaluator) != before
        evaluator.apply(inverse)
        assert told(evaluator) == before
        evaluator.apply(change)


@settings(max_examples=examples(200))
@given(st.data())
def test_what_the_evaluator_refuses_is_illegal_or_without_effect(data):
    """A change that has no meaning for the evaluator is no legal schedule for the judge either."""
    graph = data.draw(graphs(min_nodes=2))
    evaluator = data.draw(replayed(compile_problem(graph, REGISTRY)))
    change = data.draw(transfers(evaluator))
    if change is None:
        return
    occurrence = 0
    if change.made != OWNED:
        made = sorted(evaluator.executions[evaluator.node_of[change.made]], key=evaluator.places.__getitem__)
        occurrence = made.index(change.made)
    store, gone, load = (evaluator.places[e] for e in (change.store, change.after, change.before))
    back = next(
        (p for p in sorted(evaluator.places[e] for e in evaluator.events(change.storage)) if p >= load),
        len(evaluator.order),
    )
    try:
        evaluator.apply(change)
    except ValueError:
        stay = HostStay(change.storage, occurrence, store, gone, load, back)
        assert not is_legal(graph, evaluator, [stay])
    else:
        assert is_legal(graph, evaluator, evaluator.stays())


@settings(max_examples=examples(200))
@given(st.data())
def test_changes_around_transfers_equal_the_reference(data):
    """Repetitions come and go and nodes move while storages are away."""
    graph = data.draw(graphs(min_nodes=3, rng=False))
    problem = compile_problem(graph, REGISTRY)
    evaluator = Evaluator(problem)
    for _ in range(data.draw(st.integers(2, 10))):
        kind = data.draw(st.sampled_from(["transfer", "repeat", "remove", "move"]))
        change = None
        if kind == "transfer":
            change = data.draw(transfers(evaluator))
        elif kind == "repeat":
            before = data.draw(st.integers(0, problem.node_count))
            ran = [n for n in range(problem.node_count) if evaluator.place_of(n) < evaluator.place_of(before)]
            change = Insert((data.draw(st.sampled_from(ran)),), before) if ran else None
        elif kind == "remove" and (anchors := evaluator.anchors()):
            before = data.draw(st.sampled_from(anchors))
            change = Remove((data.draw(st.sampled_from(evaluator.repeated(before))),), before)
        elif kind == "move":
            node, before = data.draw(st.permutations(range(problem.node_count)).map(lambda p: p[:2]))
            change = Move((node,), before)
        if change is None:
            continue
        was = (
            evaluator.sequence(),
            evaluator.stays(),
            evaluator.bytes.tolist(),
            evaluator.host_bytes.tolist(),
        )
        try:
            evaluator.apply(change)
        except (ValueError, KeyError):
            continue
        if is_legal(graph, evaluator, ()):
            assert_equals_reference(graph, evaluator, {})
        else:
            evaluator.undo()
            assert was == (
                evaluator.sequence(),
                evaluator.stays(),
                evaluator.bytes.tolist(),
                evaluator.host_bytes.tolist(),
            )


def chain():
    """0 makes a; 1 writes a; 2 reads a; 3, 4, 5 do without; 6 reads a, and is the output; sizes 10, then 1 each."""
    b = GraphBuilder("chain", REGISTRY)
    w = b.input("w", (1,))
    (a,) = b.node("toy.mix", w, outputs=["a: f32[10]"])
    (r,) = b.node("toy.relu_", a, outputs=["r: f32[10] @a"])
    (v,) = b.node("toy.mix", r, outputs=["v2: f32[1]"])
    for number in (3, 4, 5):
        (v,) = b.node("toy.mix", v, outputs=[f"v{number}: f32[1]"])
    (o,) = b.node("toy.mix", v, r, outputs=["o: f32[1]"])
    b.output(o)
    graph = b.finish()
    return graph, Evaluator(compile_problem(graph, REGISTRY)), graph.values[a].storage


def test_a_transfer_splits_the_span_of_a_storage():
    graph, evaluator, a = chain()
    assert evaluator.spans[a] == ((0, 6),)
    assert evaluator.bytes.tolist() == [44, 44, 48, 52, 52, 52, 52]
    transfer = Transfer(a, 0, store=1, after=3, before=5)
    evaluator.apply(transfer)
    assert evaluator.spans[a] == ((0, 3), (5, 6))
    assert evaluator.bytes.tolist() == [44, 44, 48, 52, 12, 52, 52]
    assert evaluator.host_bytes.tolist() == [0, 40, 40, 40, 40, 40, 0]
    assert evaluator.stays() == (HostStay(a, 0, 1, 3, 5, 6),)
    assert [str(step) for step in schedule_of(graph, evaluator).steps] == [
        *("compute 0", "compute 1", f"store {a}", "compute 2", "compute 3", f"wait {a}", "compute 4"),
        *(f"load {a}", "compute 5", f"wait {a}", "compute 6"),
    ]
    assert_equals_reference(graph, evaluator, {})
    twin = evaluator.copy()
    twin.apply(Keep(transfer))
    assert (twin.stays(), twin.peak_host_bytes, twin.spans[a]) == ((), 0, ((0, 6),))
    assert evaluator.transfers(a) == (transfer,)


def test_a_storage_may_leave_twice_and_an_output_returns_at_the_end():
    b = GraphBuilder("twice", REGISTRY)
    (a,) = b.node("toy.mix", b.input("w", (1,)), outputs=["a: f32[10]"])
    for number in (1, 2, 3, 4, 5):
        (v,) = b.node("toy.mix", *([a] if number == 3 else []), outputs=[f"v{number}: f32[1]"])
    b.output(a, v)
    graph = b.finish()
    storage = graph.values[a].storage
    evaluator = Evaluator(compile_problem(graph, REGISTRY))
    evaluator.apply(Transfer(storage, 0, store=0, after=1, before=3))
    evaluator.apply(Transfer(storage, 0, store=3, after=3, before=5))
    assert evaluator.host_bytes.tolist() == [40, 40, 40, 40, 40, 40]
    assert [stay.back_before for stay in evaluator.stays()] == [3, 6]
    assert_equals_reference(graph, evaluator, {})
    with pytest.raises(ValueError, match="leave and return"):
        evaluator.apply(Transfer(storage, 0, store=1, after=2, before=4))


@together(
    ("places", "why"),
    [
        ((0, 3, 5), "overwritten by execution 1 while it is copied"),
        ((1, 1, 5), "away where execution 2 touches it"),
        ((2, 4, 4), "leave and return"),
        ((3, 2, 5), "leave and return"),
    ],
)
def test_a_transfer_without_meaning_is_refused_and_changes_nothing(places, why):
    _, evaluator, a = chain()
    with pytest.raises(ValueError, match=why):
        evaluator.apply(Transfer(a, 0, *places))
    assert (evaluator.stays(), evaluator.bytes.tolist()) == ((), [44, 44, 48, 52, 52, 52, 52])
    with pytest.raises(IndexError):
        evaluator.undo()


def test_a_transfer_of_nothing_is_refused():
    graph, evaluator, a = chain()
    with pytest.raises(ValueError, match="not made"):
        evaluator.apply(Transfer(a, 2, 2, 3, 5))
    with pytest.raises(ValueError, match="without bytes"):
        evaluator.apply(Transfer(graph.input_storages()[0], 0, 1, 2, 4))
    with pytest.raises(ValueError, match="not there"):
        evaluator.apply(Keep(Transfer(a, 0, 1, 3, 5)))
    last = graph.values[graph.outputs[0]].storage
    with pytest.raises(ValueError, match="leave and return"):
        evaluator.apply(Transfer(last, 6, 6, 6, 6))
    between = graph.values[graph.nodes[3].outputs[0]].storage
    with pytest.raises(ValueError, match="nothing needs it"):
        evaluator.apply(Transfer(between, 3, 4, 4, 6))


def test_changes_that_leave_a_transfer_without_meaning_are_refused():
    graph, evaluator, a = chain()
    evaluator.apply(Insert((3,), 5))
    again = evaluator.executions[3][1]
    evaluator.apply(Transfer(a, 0, store=2, after=3, before=again))
    assert_equals_reference(graph, evaluator, {})
    kept = (evaluator.sequence(), evaluator.stays(), evaluator.bytes.tolist())
    with pytest.raises(ValueError, match="stands at"):
        evaluator.apply(Remove((3,), 5))
    with pytest.raises(ValueError, match="away where"):
        evaluator.apply(Insert((1,), 5))
    assert (evaluator.sequence(), evaluator.stays(), evaluator.bytes.tolist()) == kept


def test_a_transfer_moves_along_with_the_step_that_it_stands_at():
    b = GraphBuilder("moved", REGISTRY)
    w = b.input("w", (1,))
    (a,) = b.node("toy.mix", w, outputs=["a: f32[10]"])
    others = [b.node("toy.mix", w, outputs=[f"v{n}: f32[{n}]"])[0] for n in (1, 2, 3)]
    (o,) = b.node("toy.mix", a, *others, outputs=["o: f32[1]"])
    b.output(o)
    graph = b.finish()
    evaluator = Evaluator(compile_problem(graph, REGISTRY))
    evaluator.apply(Transfer(graph.values[a].storage, 0, store=0, after=1, before=3))
    with pytest.raises(ValueError, match="leave and return"):
        evaluator.apply(Move((1,), 4))
    evaluator.apply(Move((1,), 3))
    assert evaluator.stays()[0] == HostStay(graph.values[a].storage, 0, 0, 2, 3, 4)
    assert_equals_reference(graph, evaluator, {})
    evaluator.undo()
    assert evaluator.stays()[0].gone_behind == 1
