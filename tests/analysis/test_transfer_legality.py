from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neaptide.analysis.legality.schedule import check_schedule
from neaptide.analysis.profile_bytes import memory_profile
from neaptide.errors import VerifyError
from neaptide.ir.builder import GraphBuilder
from neaptide.ir.graph import Segment
from neaptide.ir.nodes import MergeMap, SliceMap
from neaptide.ir.schedule import Offload, Schedule, Step, StepKind
from neaptide.ir.values import Kind
from neaptide.symbolic.size_expr import SizeExpr
from neaptide_corpus.training_steps import toy_registry
from support.drawn import graphs
from support.together import together

REGISTRY = toy_registry()
STORE, LOAD, WAIT = StepKind.STORE, StepKind.LOAD, StepKind.WAIT


def program(**more):
    """0 makes a; 1 views it; 2 writes it; 3 reads nothing of it; 4 neither; 5 reads the view; 6 updates the weight."""
    b = GraphBuilder("transfers", REGISTRY)
    w = b.input("w", (4,), kind=Kind.PARAMETER)
    x = b.input("x", (4,), kind=Kind.INPUT)
    (a,) = b.node("toy.dropout", w, outputs=["a: f32[4]"], rng="cpu")
    (v,) = b.node("toy.view", a, outputs=["v: f32[4] @a"])
    (r,) = b.node("toy.relu_", a, outputs=["r: f32[4] @a"])
    (c,) = b.node("toy.mix", w, outputs=["c: f32[4]"], **more)
    (d,) = b.node("toy.mix", c, outputs=["d: f32[4]"])
    (e,) = b.node("toy.mix", v, r, d, outputs=["e: f32[4]"])
    b.node("toy.add_", w, e, outputs=["w2: f32[4] @w"])
    b.output(c, e)
    graph = b.finish()
    return graph, {
        name: graph.values[x].storage for name, x in (("w", w), ("x", x), ("a", a), ("c", c), ("e", e))
    }


def steps_of(graph, storages, text):
    """Steps from words: a number runs a node, `store a` and its like move a storage; `#k` names an instance."""
    steps, seen = [], set()
    words = iter(text.split())
    for word in words:
        if word.isdigit():
            again = int(word) in seen
            seen.add(int(word))
            steps.append(Step(StepKind.RECOMPUTE if again else StepKind.COMPUTE, int(word), int(again)))
        else:
            name, _, occurrence = next(words).partition("#")
            steps.append(Step(StepKind(word), storages[name], int(occurrence or 0)))
    return Schedule(tuple(steps))


@together(
    "text",
    [
        "0 1 2 store a 3 wait a 4 load a wait a 5 6",
        "0 1 2 store a wait a 3 load a 4 wait a 5 6",
        "0 1 2 store a wait a 3 load a wait a 4 store a wait a 3 load a wait a 5 6",
        "0 1 2 3 0 1 2 store a#1 wait a#1 4 load a#1 wait a#1 5 6",
        "0 1 2 3 store w wait w 4 5 load w wait w 6",
        "0 1 2 3 store w 4 wait w 5 load w wait w 6",
        "load w wait w 0 1 2 3 4 5 6 store w wait w",
        "load w wait w 0 1 2 3 store w wait w 4 5 load w wait w 6 store w wait w",
    ],
)
def test_what_leaves_and_returns_untouched_is_legal(text):
    graph, storages = program()
    check_schedule(graph, steps_of(graph, storages, text), REGISTRY)


@together(
    ("text", "message"),
    [
        ("0 1 2 store a 3 wait a 4 5 6", r"cannot run node 5 .*a: it is away on the host"),
        ("0 1 2 store a 3 wait a 4 load a 5 6", r"cannot run node 5 .*a: it is being loaded: the wait"),
        ("0 store a wait a 1 2 3 4 load a wait a 5 6", r"cannot run node 1 .*a: it is away"),
        ("0 1 store a 2 3 wait a 4 load a wait a 5 6", r"cannot run node 2 .*a: it is overwritten while"),
        ("store a 0 1 2 3 4 5 6", "cannot store a.*not made yet"),
        ("0 1 2 3 4 5 store a wait a 6", "cannot store a.*nothing needs it"),
        ("0 1 2 store a 3 4 5 wait a 6", "cannot wait a.*nothing needs it"),
        ("0 1 2 3 load a wait a 4 5 6", "cannot load a.*on the device, and was not stored"),
        ("0 1 2 store a load a 3 wait a 4 5 6", "cannot load a.*being stored: the wait"),
        ("0 1 2 store a wait a 3 load a load a 4 wait a 5 6", "cannot load a.*being loaded"),
        ("0 1 2 store a 3 store a wait a 4 load a wait a 5 6", "cannot store a.*being stored"),
        ("0 1 2 store a wait a 3 store a 4 load a wait a 5 6", "cannot store a.*away"),
        ("0 1 2 store a wait a 3 0 1 2 4 load a wait a 5 6", "cannot store a.*nothing needs it"),
        ("0 1 2 wait a 3 4 5 6", "cannot wait a.*no copy is under way"),
        ("0 1 2 store a#1 3 4 5 6", "cannot store a #1.*not made yet"),
        ("0 1 2 store w 3 4 5 6", "cannot run node 6 .*w: it is overwritten while it is being stored"),
        ("0 1 2 store w wait w 3 load w wait w 4 5 6", "cannot run node 3 .*w: it is away"),
        ("0 1 2 3 4 5 6 store w wait w", "the steps end while w is not back.*away"),
        ("load w wait w 0 1 2 3 4 5 6", "the steps end while w is on the device.*when the next run"),
        ("load w wait w 0 1 2 3 4 5 6 store w", "the steps end while w is not back.*being stored"),
        ("load w 0 wait w 1 2 3 4 5 6 store w wait w", "cannot run node 0 .*w: it is being loaded"),
        (
            "load x wait x 0 1 2 3 4 5 6 store x wait x",
            "x cannot be on the host when the steps begin.*no para",
        ),
        ("load a wait a 0 1 2 3 4 5 6 store a wait a", "cannot load a.*not made yet"),
        (
            "0 1 2 store x wait x 3 load x wait x 4 5 6",
            "cannot store x.*the caller owns it, and it is no state",
        ),
        ("0 1 2 3 4 5 store e 6 wait e", "the steps end while e is not back.*away"),
        ("0 1 2 3 4 5 store e 6", "the steps end while e is not back.*being stored"),
        ("0 1 2 3 4 store c wait c load c 5 6", "the steps end while c is not back.*being loaded"),
        ("0 1 2 3 4 5 store e 6 wait e load e wait e", "cannot load e.*no operation comes after"),
        (
            "0 1 2 store a wait a 3 load a store c wait c 4 wait a 5 6",
            "cannot store c.*what leaves comes before",
        ),
        (
            "0 1 2 store a 3 store c wait a load a wait c 4 wait a 5 6",
            "cannot wait c.*what leaves comes before",
        ),
    ],
)
def test_illegal_transfers_are_refused_with_the_reason(text, message):
    graph, storages = program()
    with pytest.raises(VerifyError) as refused:
        check_schedule(graph, steps_of(graph, storages, text), REGISTRY)
    assert refused.match(f"(?s){message}")


def test_state_that_is_on_the_host_between_two_runs_has_no_bytes_before_and_behind():
    graph, storages = program()
    text = "0 1 2 3 store w wait w 4 5 load w wait w 6"
    within = memory_profile(graph, steps_of(graph, storages, text))
    between = memory_profile(graph, steps_of(graph, storages, f"load w wait w {text} store w wait w"))
    assert between.bytes_at == within.bytes_at
    # Nothing needs the weight at nodes 1, 2, 4 and 5.
    whole = memory_profile(graph, Schedule.program_order(graph))
    split = steps_of(
        graph,
        storages,
        "load w wait w 0 store w wait w 1 2 load w wait w 3 store w wait w 4 5 load w wait w 6",
    )
    split = replace(split, steps=(*split.steps, Step(STORE, storages["w"]), Step(WAIT, storages["w"])))
    check_schedule(graph, split, REGISTRY)
    less = [a - b for a, b in zip(whole.bytes_at, memory_profile(graph, split).bytes_at, strict=True)]
    assert less == [0, 16, 16, 0, 16, 16, 0]


def test_a_parameter_that_is_handed_back_is_on_the_device_between_two_runs():
    b = GraphBuilder("handed back", REGISTRY)
    w = b.input("w", (4,), kind=Kind.PARAMETER)
    (v,) = b.node("toy.view", w, outputs=["v: f32[4] @w"])
    b.node("toy.mix", v, outputs=["m: f32[4]"])
    b.output(v)
    graph = b.finish()
    steps = steps_of(graph, {"w": graph.values[w].storage}, "load w wait w 0 1 store w wait w")
    with pytest.raises(VerifyError, match="w cannot be on the host when the steps begin"):
        check_schedule(graph, steps, REGISTRY)


def test_a_state_that_the_steps_make_may_be_on_the_host_when_they_end():
    b = GraphBuilder("first", REGISTRY)
    w = b.input("w", (4,), kind=Kind.PARAMETER)
    (m,) = b.node("toy.mix", w, outputs=["m: f32[4]"])
    (loss,) = b.node("toy.mix", m, outputs=["loss: f32[1]"])
    b.output(m, loss)
    graph = b.finish()
    storage = graph.values[m].storage
    kinds = (replace(s, kind=Kind.OPTIMIZER_STATE) if s.id == storage else s for s in graph.storages)
    first = replace(graph, storages=tuple(kinds))
    schedule = steps_of(graph, {"m": storage}, "0 store m wait m 1")
    with pytest.raises(VerifyError, match="cannot run node 1"):
        check_schedule(first, schedule, REGISTRY)
    schedule = steps_of(graph, {"m": storage}, "0 1 store m wait m")
    check_schedule(first, schedule, REGISTRY)
    with pytest.raises(VerifyError, match="the steps end while m is not back"):
        check_schedule(graph, schedule, REGISTRY)


def test_a_part_in_a_collective_stays_on_the_device():
    graph, storages = program(collective="world")
    with pytest.raises(
        VerifyError, match=r"(?s)cannot store c.*node 3 \(toy.mix\) takes part in a collective"
    ):
        check_schedule(
            graph, steps_of(graph, storages, "0 1 2 3 store c wait c load c wait c 4 5 6"), REGISTRY
        )


def test_nothing_is_away_where_a_segment_begins():
    graph, storages = program()
    cut = replace(graph, segments=(Segment("forward", 0, 4), Segment("backward", 4, 7)))
    across = steps_of(cut, storages, "0 1 2 store a wait a 3 4 load a wait a 5 6")
    check_schedule(graph, across, REGISTRY)
    with pytest.raises(
        VerifyError, match=r"(?s)cannot run node 4.*a: segment 'backward' begins while it is away"
    ):
        check_schedule(cut, across, REGISTRY)
    within = steps_of(cut, storages, "0 1 2 store a wait a load a 3 wait a 4 5 6")
    check_schedule(cut, within, REGISTRY)


def test_a_body_of_a_loop_stores_what_it_makes_within_a_trip_and_nothing_that_it_is_handed():
    inner = GraphBuilder("body", REGISTRY)
    (h,) = inner.node("toy.mix", inner.input("part", (2,), kind=Kind.PARAMETER), outputs=["h: f32[3]"])
    (m,) = inner.node("toy.mix", outputs=["m: f32[4]"])
    (n,) = inner.node("toy.mix", m, outputs=["n: f32[5]"])
    inner.output(inner.node("toy.mix", h, n, outputs=["o: f32[2]"])[0])
    b = GraphBuilder("loop", REGISTRY)
    slices = [SliceMap(0, 0, SizeExpr.const(2))]
    merges = [MergeMap(0, "concat")]
    b.output(
        *b.loop(inner.finish(), 4, [b.input("x", (8,))], outputs=["y: f32[8]"], slices=slices, merges=merges)
    )
    graph = b.finish()
    body = graph.nodes[0].regions[0].body
    offload = Offload(body.created_storages(body.nodes[0])[0], 0, 0, 0, 2, 3)
    stored = Schedule.program_order(body).with_offloads([offload])
    check_schedule(body, stored, REGISTRY)
    check_schedule(
        graph, Schedule(Schedule.program_order(graph).steps, {0: Schedule.program_order(body)}), REGISTRY
    )
    outer = Schedule.program_order(graph).steps
    check_schedule(graph, Schedule(outer, {0: stored}), REGISTRY)
    (handed,) = body.input_storages()[:1]
    for wrong, why in (
        (Offload(offload.storage, 0, 0, 0, 2, 4), "it is being loaded"),
        (Offload(handed, 0, 0, 0, 2, 4), "the loop hands it to its body"),
    ):
        order = Schedule.program_order(body).with_offloads([wrong])
        with pytest.raises(VerifyError, match="in the body of node 0") as raised:
            check_schedule(graph, Schedule(outer, {0: order}), REGISTRY)
        assert why in str(raised.value)


def test_bytes_follow_from_the_order_of_the_steps_alone():
    graph, storages = program()
    schedule = steps_of(graph, storages, "0 1 2 store a 3 wait a 4 load a wait a 5 6")
    profile = memory_profile(graph, schedule)
    assert profile.bytes_at == (48, 48, 48, 64, 64, 96, 64)
    assert profile.host_bytes_at == (0, 0, 16, 16, 16, 0, 0)
    assert profile.peak_host_bytes == 16
    assert memory_profile(graph, schedule, device="cuda:0").peak_host_bytes == 0


@given(st.data())
def test_any_offload_that_is_legal_lowers_bytes_only_where_it_is_away(data):
    graph = data.draw(graphs(min_nodes=2))
    plain = Schedule.program_order(graph)
    made = [s for n in graph.nodes for s in graph.created_storages(n)]
    if not made:
        return
    places = data.draw(st.lists(st.integers(0, len(graph.nodes)), min_size=4, max_size=4).map(sorted))
    offload = Offload(data.draw(st.sampled_from(made)), 0, *places)
    try:
        schedule = plain.with_offloads([offload])
        check_schedule(graph, schedule, REGISTRY)
    except VerifyError:
        return
    nbytes = graph.storages[offload.storage].nbytes.constant_value()
    before, after = memory_profile(graph, plain), memory_profile(graph, schedule)
    for position, (whole, held) in enumerate(zip(before.bytes_at, after.bytes_at, strict=True)):
        assert whole - held == nbytes * (offload.gone_after < position < offload.load_before)


def test_an_offload_must_leave_and_return_in_this_order_within_the_schedule():
    graph, storages = program()
    for places in ((2, 1, 4, 5), (1, 4, 4, 5), (1, 2, 6, 5), (-1, 2, 4, 5), (1, 2, 4, 8)):
        with pytest.raises(VerifyError, match="cannot stay on the host at"):
            Schedule.program_order(graph).with_offloads([Offload(storages["a"], 0, *places)])
