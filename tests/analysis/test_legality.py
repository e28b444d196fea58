from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neaptide.analysis.legality.schedule import check_schedule
from neaptide.errors import VerifyError
from neaptide.ir.builder import GraphBuilder
from neaptide.ir.registry import OpRegistry, OpSpec
from neaptide.ir.schedule import Schedule, Step, StepKind
from neaptide_corpus.training_steps import toy_registry
from support.drawn import graphs, schedules
from support.together import together

REGISTRY = toy_registry()


def check(graph, sequence, registry=REGISTRY):
    check_schedule(graph, Schedule.from_nodes(graph, sequence), registry)


def in_place_graph():
    """0 makes a; 1 reads it; 2 overwrites it; 3 reads the new version; 4 updates the weight; 5 draws."""
    b = GraphBuilder("in_place", REGISTRY)
    w = b.input("w", (4,))
    (a,) = b.node("toy.mix", w, outputs=["a: f32[4]"])
    (c,) = b.node("toy.mix", a, outputs=["c: f32[4]"])
    (r,) = b.node("toy.relu_", a, outputs=["r: f32[4] @a"])
    (d,) = b.node("toy.mix", r, outputs=["d: f32[4]"])
    b.node("toy.add_", w, d, outputs=["w2: f32[4] @w"])
    (m,) = b.node("toy.dropout", d, outputs=["m: f32[4]"])
    b.output(c, m)
    return b.finish(), r


@given(st.data())
def test_every_topological_order_is_legal(data):
    graph = data.draw(graphs())
    check_schedule(graph, data.draw(schedules(graph)), REGISTRY)


def test_a_replay_of_creator_and_writer_is_legal():
    graph, _ = in_place_graph()
    check(graph, [0, 1, 2, 0, 2, 3, 4, 5])
    check(graph, [0, 1, 0, 2, 3, 4, 5])
    check(graph, [0, 1, 2, 3, 0, 1, 2, 4, 5])


def test_a_draw_of_random_numbers_may_be_repeated():
    graph, _ = in_place_graph()
    check(graph, [0, 1, 2, 3, 4, 5, 5])


@together(
    ("sequence", "message"),
    [
        ([0, 1, 3, 2, 4, 5], r"node 2 \(toy.relu_\) must run before it"),
        ([0, 2, 1, 3, 4, 5], r"node 1 \(toy.mix\) must run before it"),
        ([0, 1, 2, 3, 4], "never runs"),
        ([0, 1, 2, 2, 3, 4, 5], "is at version 1, not 0"),
        ([0, 1, 2, 3, 1, 4, 5], "is at version 1, not 0"),
        ([0, 1, 2, 3, 4, 4, 5], "overwrites w, which the caller owns"),
        ([0, 1, 2, 3, 4, 0, 5], "w is at version 1, not 0"),
    ],
)
def test_illegal_sequences_are_refused_with_the_reason(sequence, message):
    graph, _ = in_place_graph()
    with pytest.raises(VerifyError, match=message):
        check(graph, sequence)


def test_a_replay_without_the_writer_is_refused_where_the_new_version_is_read():
    b = GraphBuilder("versions", REGISTRY)
    x = b.input("x", (4,))
    (a,) = b.node("toy.mix", x, outputs=["a: f32[4]"])
    b.node("toy.relu_", a, outputs=["r: f32[4] @a"])
    (d,) = b.node("toy.mix", a, outputs=["d: f32[4]"])
    b.output(d)
    graph = b.finish()
    with pytest.raises(VerifyError, match="is at version 0, not 1"):
        check(graph, [0, 1, 0, 2])


def test_an_output_must_hold_its_final_version():
    b = GraphBuilder("final", REGISTRY)
    x = b.input("x", (4,))
    (a,) = b.node("toy.mix", x, outputs=["a: f32[4]"])
    b.node("toy.relu_", a, outputs=["r: f32[4] @a"])
    b.output(a)
    graph = b.finish()
    with pytest.raises(VerifyError, match="output a is at version 0, not 1"):
        check(graph, [0, 1, 0])
    check(graph, [0, 1, 0, 1])


def test_unknown_and_nondeterministic_ops_are_not_repeated():
    graph, _ = in_place_graph()
    with pytest.raises(VerifyError, match="is not known"):
        check(graph, [0, 1, 2, 0, 2, 3, 4, 5], OpRegistry([]))
    shaky = OpRegistry([OpSpec("toy.mix", deterministic=False), OpSpec("toy.relu_", writes=(0,))])
    with pytest.raises(VerifyError, match="other bits"):
        check(graph, [0, 1, 2, 0, 2, 3, 4, 5], shaky)
    schedule = Schedule.from_nodes(graph, [0, 1, 2, 0, 2, 3, 4, 5])
    check_schedule(graph, schedule, shaky.with_bits(may_vary=True))


def test_batch_norm_is_replayed_by_its_stand_in_and_leaves_statistics_alone():
    b = GraphBuilder("bn", REGISTRY)
    x, w, mean, var = (b.input(name, (4,)) for name in ("x", "w", "mean", "var"))
    n, m, s = b.node("toy.batch_norm", x, w, mean, var, outputs=["n: f32[4]", "m: f32[1]", "s: f32[1]"])
    (d,) = b.node("toy.mix", n, m, s, outputs=["d: f32[4]"])
    b.output(d)
    graph = b.finish()
    check(graph, [0, 0, 1])


def test_freeing_too_early_or_what_the_caller_owns_is_refused():
    graph, r = in_place_graph()
    storage = graph.values[r].storage
    steps = Schedule.program_order(graph).steps
    early = Schedule((*steps[:2], Step(StepKind.FREE, storage), *steps[2:]))
    with pytest.raises(VerifyError, match="has been freed"):
        check_schedule(graph, early, REGISTRY)
    owned = Schedule((*steps, Step(StepKind.FREE, graph.input_storages()[0])))
    with pytest.raises(VerifyError, match="the caller owns"):
        check_schedule(graph, owned, REGISTRY)
    twice = Schedule((*steps, *[Step(StepKind.FREE, storage)] * 2))
    with pytest.raises(VerifyError, match="not there"):
        check_schedule(graph, twice, REGISTRY)


def test_occurrences_count_up_and_evictions_are_not_covered():
    graph, _ = in_place_graph()
    steps = Schedule.program_order(graph).steps
    with pytest.raises(VerifyError, match="the step says 1"):
        check_schedule(graph, Schedule((Step(StepKind.RECOMPUTE, 0, 1), *steps[1:])), REGISTRY)
    with pytest.raises(VerifyError, match="evict step"):
        check_schedule(graph, Schedule((*steps, Step(StepKind.EVICT, 0))), REGISTRY)
