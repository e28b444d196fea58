"""Costs from running operations alone: what is run, what is remembered, and that nothing is left behind."""

import gc
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace

import pytest

# ruff: noqa: E402  (what follows needs torch, which is an extra)
torch = pytest.importorskip("torch")

from cost.node_costs import node_seconds, node_workspace
from neaptide.cost import measured
from neaptide.cost.cache import OpCostCache
from neaptide.cost.cards import allocator_events
from neaptide.cost.cards.allocator_events import record, region_scratch
from neaptide.cost.measured import MeasuredCost
from neaptide.cost.model import HOST_SCALAR_S, EstimatedCost
from neaptide.cost.presets import get_device
from neaptide.cost.timing import call_clock, op_session
from neaptide.cost.timing.call_clock import CallClock
from neaptide.cost.timing.op_session import environment
from neaptide.errors import UsageError
from neaptide.ir.builder import GraphBuilder
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Ref
from neaptide.ops import registry
from neaptide.symbolic.size_expr import SizeExpr
from support.hand_graphs import looped

FALLBACK = EstimatedCost(get_device("a100-40g"), registry())


@pytest.fixture
def cache(tmp_path):
    return OpCostCache(tmp_path / "costs")


def make(cache, **options) -> MeasuredCost:
    return MeasuredCost(registry(), cache, fallback=FALLBACK, **options)


def small_step() -> Graph:
    """A layer, a view, a repeated call, an update in place, random numbers, a number of Python and an index."""
    b = GraphBuilder("step", registry())
    x, w = b.input("x", (32, 64)), b.input("w", (64, 64))
    table, ids = b.input("table", (500, 64)), b.input("ids", (32,), dtype="int64")
    rate = b.scalar("rate", "float64")
    (wt,) = b.node("aten.t.default", w, outputs=["wt: f32[64, 64] strides(1, 64) @w"])
    (h,) = b.node("aten.mm.default", x, wt, outputs=["h: f32[32, 64]"])
    (rows,) = b.node("aten.embedding.default", table, ids, outputs=["rows: f32[32, 64]"])
    (s,) = b.node("aten.add.Tensor", h, rows, outputs=["s: f32[32, 64]"])
    (s2,) = b.node("aten.add.Tensor", s, rows, outputs=["s2: f32[32, 64]"])
    (d, mask) = b.node(
        "aten.native_dropout.default", s2, 0.5, True, outputs=["d: f32[32, 64]", "mask: bool[32, 64]"]
    )
    (minus,) = b.node("host.neg", rate, outputs=["minus: host f64"])
    b.node("aten.add_.Tensor", x, d, kwargs={"alpha": minus}, outputs=["x2: f32[32, 64] @x"])
    b.output(d, mask)
    return b.finish()


def live_tensors() -> dict[int, torch.Tensor]:
    """By identity, all tensors that are there; who holds the result keeps them there."""
    gc.collect()
    # `isinstance` would ask the objects, and deprecated ones answer with a warning.
    return {id(o): o for o in gc.get_objects() if issubclass(type(o), torch.Tensor)}


@pytest.mark.parametrize(
    ("kept_s", "usual_s", "now_s", "refresh", "expected"),
    [
        (3e-1, 2e-5, 2e-5, False, 2e-5),  # it was wrong
        (3e-1, 2e-5, 1e-1, True, 2e-5),  # it is measured again anyway
        (2e-5, 9e-5, 9e-5, False, 2e-5),  # a busy moment
    ],
)
def test_a_clock_that_was_wrong_is_renewed(cache, monkeypatch, kept_s, usual_s, now_s, refresh, expected):
    monkeypatch.setattr(measured.CallClock, "usual_reference_s", lambda _: kept_s)
    make(cache).clock()
    monkeypatch.setattr(measured.CallClock, "usual_reference_s", lambda _: usual_s)
    monkeypatch.setattr(measured.CallClock, "reference_now_s", lambda _: now_s)
    assert make(cache, refresh=refresh).clock().reference_s == make(cache).clock().reference_s == expected


def test_what_was_measured_at_a_wrong_clock_is_told_at_the_right_one(cache, monkeypatch):
    monkeypatch.setattr(measured.CallClock, "usual_reference_s", lambda _: 3e-1)
    before = make(cache)
    before.prepare(small_step())
    slow = node_seconds(before, small_step())
    monkeypatch.setattr(measured.CallClock, "usual_reference_s", lambda _: 3e-5)
    monkeypatch.setattr(measured.CallClock, "reference_now_s", lambda _: 3e-5)
    graph, cost = small_step(), make(cache)
    assert cost.prepare(graph) == 0
    told = node_seconds(cost, graph)
    assert told[0] == pytest.approx(1e-4 * slow[0])
    assert told[6] == slow[6] == HOST_SCALAR_S


def test_each_distinct_call_is_run_once(cache):
    graph, cost = small_step(), make(cache)
    assert cost.prepare(graph) == 6
    assert cost.skipped(graph) == ()
    seconds = node_seconds(cost, graph)
    assert all(0 < s < 1 for s in seconds)
    assert seconds[3] == seconds[4]  # the same call
    assert seconds[6] == HOST_SCALAR_S
    assert cost.is_measured
    assert cost.storage_bytes(graph) == {}
    assert cost.prepare(graph) == 0


def test_what_is_known_is_measured_again_only_where_asked_and_starts_no_recording(cache, monkeypatch):
    graph = small_step()
    make(cache).prepare(graph)
    again = make(cache, refresh=True)
    assert again.prepare(graph) == 6
    monkeypatch.setattr(op_session, "region_peaks", lambda _: pytest.fail("a recording was started"))
    assert again.prepare(graph) == 0, "once for each user"
    later = make(cache)
    assert later.prepare(graph) == 0
    assert node_seconds(later, graph) == node_seconds(again, graph)


def test_the_world_is_as_before(cache):
    graph = small_step()
    make(cache).prepare(graph)  # whatever is made once per process is made now
    torch.manual_seed(7)
    expected = torch.rand(4)
    torch.manual_seed(7)
    before = live_tensors()
    with torch.no_grad():
        MeasuredCost(registry(), OpCostCache(cache.path.with_name("other")), fallback=FALLBACK).prepare(graph)
        assert not torch.is_grad_enabled()
    assert live_tensors().keys() == before.keys()
    assert torch.equal(torch.rand(4), expected)


def test_what_must_not_be_run_is_estimated_and_said(cache):
    b = GraphBuilder("odd")
    x = b.input("x", (8, 8))
    (y,) = b.node("toy.mystery", x, outputs=["y: f32[8, 8]"])
    (z,) = b.node("aten.relu.default", y, outputs=["z: f32[8, 8]"], collective="group")
    b.node("aten._print.default", "a word", host=True)
    (m,) = b.node(
        "aten.relu.default", b.input("far", (4,), device="meta"), outputs=["m: f32[4] device(meta)"]
    )
    (bad,) = b.node("aten.mm.default", x, b.input("thin", (3, 8)), outputs=["bad: f32[8, 8]"])
    b.output(z, m, bad)
    graph, cost = b.finish(), make(cache)
    cost.prepare(graph)
    reasons = {(op, reason.partition(" (")[0]) for op, reason, _ in cost.skipped(graph)}
    assert reasons == {
        ("toy.mystery", "the op table has no row for it"),
        ("aten.relu.default", "it talks to the host or to other processes"),
        ("aten._print.default", "it talks to the host or to other processes"),
        ("aten.relu.default", "its tensors are on 'meta', which does not run here"),
        ("aten.mm.default", "it fails when run alone"),
    }
    assert node_seconds(cost, graph) == node_seconds(FALLBACK, graph)
    assert node_workspace(cost, graph) == {}


def test_a_call_that_is_too_large_is_estimated(cache, monkeypatch):
    b = GraphBuilder("large", registry())
    x = b.input("x", (1 << 40,))
    (y,) = b.node("aten.relu.default", x, outputs=[f"y: f32[{1 << 40}]"])
    b.output(y)
    graph, cost = b.finish(), make(cache)
    cost.prepare(graph)
    ((op, reason, count),) = cost.skipped(graph)
    assert (op, count) == ("aten.relu.default", 1)
    assert "more than the" in reason
    monkeypatch.setattr(measured, "may_take_bytes", lambda _: 10)
    cost.prepare(small := small_step())
    assert [op for op, _, _ in cost.skipped(small)] == [
        "aten.add.Tensor", "aten.add_.Tensor", "aten.embedding.default", "aten.mm.default",
        "aten.native_dropout.default",
    ]  # fmt: skip


def test_without_a_place_for_the_cache_it_measures_all_the_same(tmp_path, monkeypatch, caplog):
    blocked = tmp_path / "a file"
    blocked.write_text("")
    monkeypatch.setenv("NEAPTIDE_CACHE_DIR", str(blocked))
    assert MeasuredCost(registry(), fallback=FALLBACK).prepare(small_step()) == 6
    assert "not kept" in caplog.text


def test_failure_for_want_of_memory_is_not_remembered(cache, monkeypatch):
    graph = small_step()

    def fail(self):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes")

    with monkeypatch.context() as patch:
        patch.setattr(op_session.PreparedCall, "run", fail)
        cost = make(cache)
        cost.prepare(graph)
        assert sum(count for _, _, count in cost.skipped(graph)) == 6
    assert make(cache).prepare(graph) == 6


def test_no_clock_runs_its_own_work_within_the_recording(cache, monkeypatch):
    """The recorder would slow it down, and would count what it allocates."""
    seen = []
    see = CallClock._see

    def looked_at(self):
        seen.append(getattr(allocator_events._session, "active", False))
        see(self)

    monkeypatch.setattr(CallClock, "_see", looked_at)
    monkeypatch.setattr(call_clock, "_LATELY_S", 0.0)  # it looks at the speed beside every call
    b = GraphBuilder("long", registry())  # milliseconds in which four bytes are allocated
    b.output(*b.node("aten.sum.default", b.input("x", (5_000_000,)), outputs=["s: f32[]"]))
    cost, graph = make(cache), b.finish()
    cost.prepare(graph)
    assert seen
    assert not any(seen)
    assert cost.workspace_bytes(graph, graph.nodes[0]) == 0


@pytest.mark.parametrize(("short_s", "timed_alone"), [(1.0, 1), (0.0, 6)])
def test_a_call_that_is_timed_in_the_program_is_timed_once_alone(cache, monkeypatch, short_s, timed_alone):
    monkeypatch.setattr(op_session, "SHORT_S", short_s)
    counts = Counter()
    seconds = op_session.PreparedCall.seconds

    def counted(self, clock):
        counts[self.call.op] += 1
        return seconds(self, clock)

    monkeypatch.setattr(op_session.PreparedCall, "seconds", counted)
    make(cache).prepare(small_step())
    assert counts["aten.mm.default"] == timed_alone


def test_calls_on_an_accelerator_are_counted_by_its_allocator(cache, monkeypatch):
    """In one recording of its device; no counter of an allocator, which the user may read, is reset."""
    expected = make(cache, refresh=True)
    graph = small_step()
    expected.prepare(graph)
    asked = []

    def scratch(fn, device):
        asked.append(device)
        return region_scratch(fn, torch.device("cpu"))

    monkeypatch.setattr(op_session, "region_scratch", scratch)
    monkeypatch.setattr(op_session, "card_of", lambda call: None if call.is_view else "cuda:1")
    monkeypatch.setattr(op_session, "is_on_cuda", lambda call: not call.is_view)
    monkeypatch.setattr(op_session.PreparedCall, "seconds_on_card", lambda _: (3e-6, 5e-6))
    monkeypatch.setattr(op_session, "undisturbed", lambda _: nullcontext())
    cost = make(cache, refresh=True)
    assert cost.prepare(graph) == 6
    assert asked == [torch.device("cuda:1")]
    assert node_workspace(cost, graph) == node_workspace(expected, graph)
    assert cost.record(graph, graph.nodes[1]).seconds == 3e-6
    assert cost.record(graph, graph.nodes[1]).launch_s == 5e-6
    assert node_seconds(cost, graph)[1] == 3e-6, "the step is on the CPU, which hands nothing over"


@pytest.mark.parametrize(("handed_over_s", "expected"), [(1e-6, 3e-6), (5e-6, 5e-6)])
def test_a_step_that_waits_for_its_host_is_told_in_seconds_of_the_host(
    cache, monkeypatch, handed_over_s, expected
):
    graph, cost = small_step(), make(cache)
    cost.prepare(graph)
    cost._records = {k: replace(r, seconds=3e-6, launch_s=handed_over_s) for k, r in cost._records.items()}
    monkeypatch.setattr(cost, "_device", torch.device("meta"))
    monkeypatch.setattr(measured, "environment", lambda _: environment())
    cost.prepare(graph)
    assert node_seconds(cost, graph)[1] == expected


def test_within_another_recording_it_says_so(cache):
    with pytest.raises(UsageError, match="recorded already"):
        record(lambda: make(cache).prepare(small_step()))


def test_masked_results_and_shape_only_operands(cache):
    b = GraphBuilder("conv", registry())
    x, w = b.input("x", (2, 3, 16, 16)), b.input("w", (4, 3, 3, 3))
    (like,) = b.node("aten.ones_like.default", x, outputs=["like: f32[2, 3, 16, 16]"])
    (y,) = b.node(
        "aten.convolution.default", like, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1,
        outputs=["y: f32[2, 4, 16, 16]"],
    )  # fmt: skip
    args = (y, like, w, [0], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [False, True, False])
    (gw,) = b.node(
        "aten.convolution_backward.default", *args, outputs=["gw: f32[4, 3, 3, 3]"],
        results=(None, Ref(0), None),
    )  # fmt: skip
    b.output(gw)
    graph, cost = b.finish(), make(cache)
    cost.prepare(graph)
    assert cost.skipped(graph) == ()
    seen = cost.record(graph, graph.nodes[2])
    assert seen is not None
    assert [facts.shape for facts in seen.outputs] == [(4, 3, 3, 3)]


def test_body_of_a_loop_is_measured_at_the_sizes_of_its_trips(cache):
    body = GraphBuilder("body", registry())
    p = body.input("p", (SizeExpr.dim("part"), 100))
    (q,) = body.node("aten.relu.default", p, outputs=["q: f32[{part}, 100]"])
    body.output(q)
    graph, cost = looped(body, 3, 3, ["y: f32[8, 100]"], x=(8, 100)), make(cache)
    # Three rows, and two in the last trip: the work, and its result put in place.
    assert cost.prepare(graph) == 4
    (seconds,) = node_seconds(cost, graph)
    assert 0 < seconds < 0.1
    assert node_workspace(cost, graph) == {0: 1200}


def test_calibration_is_put_off_until_it_is_needed(cache, monkeypatch):
    graph = small_step()
    monkeypatch.setattr(measured, "this_machine", lambda: get_device("t4"))
    cost = MeasuredCost(registry(), cache)
    first = node_seconds(cost, graph)
    assert first[1] == node_seconds(EstimatedCost(get_device("t4"), registry()), graph)[1]


@pytest.mark.parametrize(("are_too_long", "factor"), [(True, 50.0), (False, 0.02)])
def test_the_dearest_calls_are_timed_again_once_and_the_nearer_reading_is_kept(cache, are_too_long, factor):
    graph, cost = small_step(), make(cache)
    cost.prepare(graph)
    true = node_seconds(cost, graph)
    wrong = {key: replace(record, seconds=factor * record.seconds) for key, record in cost._records.items()}
    cost._records.update(wrong)
    cost.time_again(graph, are_too_long=are_too_long)
    now = node_seconds(cost, graph)
    dearest = max(range(6), key=true.__getitem__)
    assert now[dearest] < factor * true[dearest] if are_too_long else now[dearest] > factor * true[dearest]
    assert now[6] == true[6]
    kept = make(cache)
    kept.prepare(graph)
    assert node_seconds(kept, graph)[dearest] == pytest.approx(now[dearest], rel=1e-6)


def test_costs_are_kept_for_the_device_of_the_graph(cache, monkeypatch):
    """Whoever asks for costs of a graph on a card gets those of that card, without a word about it."""
    b = GraphBuilder("there", registry())
    x = b.input("x", (4, 4), device="cuda:1")
    (y,) = b.node("aten.sum.default", x, outputs=["y: f32[]"])
    b.output(y)
    graph, asked = b.finish(), []
    monkeypatch.setattr(measured, "environment", lambda device: asked.append(device) or "there")
    monkeypatch.setattr(measured, "may_take_bytes", lambda device: asked.append(device) or 10**9)
    monkeypatch.setattr(measured, "card", lambda device: asked.append(device) or get_device("h100"))
    cost = MeasuredCost(registry(), cache)
    cost.prepare(graph)  # it cannot run here, and is estimated
    node_seconds(cost, graph)
    assert {str(device) for device in asked} == {"cuda:1"}
