"""Stays between two runs of a sequence: the evaluator, the clock and the bound beside what judges them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from example_counts import examples
from neaptide.analysis.kinds import storages_between_steps
from neaptide.analysis.legality import check_schedule
from neaptide.analysis.profile_bytes import memory_profile
from neaptide.cost.devices import Link
from neaptide.errors import VerifyError
from neaptide.ir.builder import GraphBuilder
from neaptide.ir.schedule import BETWEEN, HostStay, Schedule
from neaptide.ir.values import Kind
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.problem import compile_problem
from neaptide.schedule.state_bounds import lower_bound_with_state_between
from neaptide.schedule.stay_times import StayClock
from neaptide.schedule.staying import evaluated_with_stays
from neaptide.schedule.timeline import simulate_timeline
from neaptide.schedule.transfers import AWAY, OWNED, Keep, Transfer
from neaptide_corpus.training_steps import toy_registry
from strategies import graphs
from together import together

REGISTRY = toy_registry()
OUT, BACK = Link("device", "host", 8.0, 0.25), Link("host", "device", 4.0, 0.5)


def as_state(graph):
    """The graph with all that the caller owns as parameters, and with its other outputs as optimizer states."""
    owned, handed_back = set(graph.input_storages()), set(graph.output_storages())
    kinds = dict.fromkeys(handed_back, Kind.OPTIMIZER_STATE) | dict.fromkeys(owned, Kind.PARAMETER)
    return replace(graph, storages=tuple(replace(s, kind=kinds.get(s.id, s.kind)) for s in graph.storages))


@st.composite
def halves(draw, evaluator, storages):
    """A transfer without a beginning or without an end, of any instance of some storages."""
    storage = draw(st.sampled_from(sorted(storages)))
    owned = evaluator.problem.state_bytes[storage] > 0
    made = OWNED if owned else draw(st.sampled_from(evaluator.executions[evaluator.problem.creator[storage]]))
    first, last = sorted(draw(st.lists(st.sampled_from(evaluator.order.tolist()), min_size=2, max_size=2)))
    if draw(st.booleans()):
        return Transfer(storage, made, AWAY, AWAY, first)
    return Transfer(storage, made, first, last, AWAY)


@settings(max_examples=examples(200))
@given(st.data(), st.integers(0, 9))
def test_bytes_equal_the_reference_and_legal_is_what_the_judge_calls_so(data, scratch):
    graph = as_state(data.draw(graphs(min_nodes=2)))
    workspace = {node.id: scratch * (node.id % 3) for node in graph.nodes}
    problem = compile_problem(graph, REGISTRY, workspace=workspace)
    evaluator = Evaluator(problem)
    storages = storages_between_steps(graph)
    if not storages:
        return
    for _ in range(data.draw(st.integers(1, 8))):
        before = evaluator.stays(), evaluator.bytes.tolist(), evaluator.host_bytes.tolist()
        try:
            evaluator.apply(data.draw(halves(evaluator, storages)))
        except ValueError:
            assert before == (evaluator.stays(), evaluator.bytes.tolist(), evaluator.host_bytes.tolist())
            continue
        stays = evaluator.stays()
        schedule = Schedule.program_order(graph).with_stays(stays)
        begin, end = (
            {s.storage for s in stays if getattr(s, half)} for half in ("begins_before", "ends_behind")
        )
        whole = all((s in begin) == (s in end) for s in storages if problem.state_bytes[s])
        try:
            check_schedule(graph, schedule, REGISTRY)
        except VerifyError:
            assert not whole
        else:
            assert whole
            profile = memory_profile(graph, schedule, workspace=workspace)
            assert evaluator.bytes.tolist() == [
                a + b for a, b in zip(profile.bytes_at, profile.workspace_at, strict=True)
            ]
            assert evaluator.host_bytes.tolist() == list(profile.host_bytes_at)
            assert evaluator.peak >= lower_bound_with_state_between(problem)
            again = evaluated_with_stays(problem, evaluator.sequence(), stays)
            assert (again.stays(), again.bytes.tolist()) == (stays, evaluator.bytes.tolist())
            times = StayClock.of(evaluator, OUT, BACK).play(
                [stay.positions for stay in stays], [problem.moved_bytes(stay.storage) for stay in stays]
            )
            played = simulate_timeline(problem, schedule, OUT, BACK)
            assert times.exposed_s == pytest.approx(played.exposed_s)
    for storage in storages:
        for transfer in evaluator.transfers(storage):
            evaluator.apply(Keep(transfer))
    assert (evaluator.stays(), evaluator.bytes.tolist()) == ((), Evaluator(problem).bytes.tolist())


def test_a_state_that_is_away_except_where_it_is_needed_has_its_bytes_there_alone(step):
    graph, w, problem = step
    stays = (HostStay(w, 0, BETWEEN, BETWEEN, 2, 2), HostStay(w, 0, 2, 3, BETWEEN, BETWEEN))
    evaluator = evaluated_with_stays(problem, range(5), stays)
    plain = Evaluator(problem).bytes
    assert (plain - evaluator.bytes).tolist() == [40, 40, 0, 0, 40]
    assert evaluator.host_bytes.tolist() == [40, 40, 40, 40, 40]
    assert evaluator.peak_host_bytes == 40
    assert [str(s) for s in Schedule.program_order(graph).with_stays(stays).steps if s.moves_bytes] == [
        *(f"load {w}", f"wait {w}", f"store {w}", f"wait {w}")
    ]


@together(
    ("ends", "why"),
    [
        ((AWAY, AWAY, 3), "away where execution 2 touches it"),
        ((AWAY, 0, 2), "neither leaves nor returns"),
        ((AWAY, AWAY, AWAY), "neither leaves nor returns"),
        ((1, 1, AWAY), "away where execution 2 touches it"),
        ((1, 2, AWAY), "overwritten by execution 2 while it is copied"),
        ((3, 2, AWAY), "leave and return"),
    ],
)
def test_a_half_without_meaning_is_refused_and_changes_nothing(step, ends, why):
    _, w, problem = step
    evaluator = Evaluator(problem)
    before = evaluator.bytes.tolist()
    with pytest.raises(ValueError, match=why):
        evaluator.apply(Transfer(w, OWNED, *ends))
    assert (evaluator.stays(), evaluator.bytes.tolist()) == ((), before)


@pytest.fixture
def step():
    """Five nodes, of which the third updates a weight of 40 bytes and no other touches it."""
    b = GraphBuilder("update", REGISTRY)
    w, x = b.input("w", (10,), kind=Kind.PARAMETER), b.input("x", (1,), kind=Kind.INPUT)
    (a,) = b.node("toy.mix", x, outputs=["a: f32[1]"])
    (c,) = b.node("toy.mix", a, outputs=["c: f32[10]"])
    b.node("toy.add_", w, c, outputs=["w2: f32[10] @w"])
    for name in ("d", "e"):
        (a,) = b.node("toy.mix", a, outputs=[f"{name}: f32[1]"])
    b.output(a)
    graph = b.finish()
    return graph, graph.values[w].storage, compile_problem(graph, REGISTRY)
