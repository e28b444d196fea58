"""Programs inside planned arenas: the same bits, and not a byte that was not foreseen."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from neaptide.cost.cache import OpCostCache
from neaptide.cost.cards.allocator_events import record
from neaptide.cost.presets import get_device
from neaptide.errors import UsageError
from neaptide.ir.schedule import Schedule
from neaptide.lower.torch_code import lower
from neaptide.ops import registry
from neaptide.planner.prices import Prices
from neaptide.runtime.arena.out_probe import probe_outs
from neaptide.runtime.arena.plan import ArenaOptions
from neaptide.runtime.arena.planning import plan_arena
from neaptide.runtime.arena.tensors_by_shape import Arena
from neaptide.runtime.calls.executor import Executable
from neaptide.runtime.measuring.meter import LiveBytesMeter
from support.torch_programs import SEED, Recorder, bits, random_order, random_program, with_recomputation

DEVICE = get_device("a100-80g")
OPTIONS = st.builds(ArenaOptions, copies=st.sampled_from(["cheap", "all", "none"]), in_place=st.booleans())


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return OpCostCache(tmp_path_factory.mktemp("outs") / "costs")


def arena_of(graph, schedule, cache, options):
    prices = Prices((1.0,) * len(graph.nodes), {}, {})
    outs = probe_outs(graph, registry(), cache=cache)
    return plan_arena(graph, schedule, registry(), prices, outs, DEVICE, options)


def check(rec, graph, schedule, cache, options):
    """Twice in one poisoned block: the recorded bits, and the predicted peak. Returns the plan and the program."""
    plan = arena_of(graph, schedule, cache, options)
    program = lower(graph, schedule, registry(), places=plan.places)
    arena = Arena(plan.device, plan.report.arena_bytes, plan.alignment)
    executable = Executable(program, name="placed", places=arena.tensors(program))
    after = {v: rec.data[v] for v, _ in rec.before}
    for _ in range(2):
        arena.block.fill_(0xFF)
        inputs = rec.fresh_inputs()
        tensors = [t for t in inputs if isinstance(t, torch.Tensor)]
        torch.manual_seed(SEED)
        with LiveBytesMeter([*tensors, arena.block]) as meter:
            outputs = executable.run(list(inputs))
        assert [bits(o) for o in outputs] == [bits(rec.data[v]) for v in graph.outputs], program.source
        assert [bits(t) for t in inputs] == [bits(after[v]) for v in graph.inputs], program.source
        assert meter.peak_bytes <= plan.report.peak_bytes, program.source
        begin = arena.block.untyped_storage().data_ptr()
        for output in outputs:
            if isinstance(output, torch.Tensor) and arena.nbytes and output.untyped_storage().nbytes():
                assert output.untyped_storage().data_ptr() != begin, "what is handed back is outside"
    return plan, executable


@settings(
    max_examples=settings.default.max_examples,
    deadline=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.function_scoped_fixture,
    ],
)
@given(st.data())
def test_random_programs_in_any_order_with_recomputation(cache, data):
    rec, graph = random_program(data.draw)
    order = with_recomputation(data.draw, graph, random_order(data.draw, graph))
    check(rec, graph, Schedule.from_nodes(graph, order), cache, data.draw(OPTIONS))


# -- what stays outside, and why


def chain():
    """x @ x, a layer norm without an overload of its own, and two results that live long."""
    rec = Recorder()
    x = rec.input(torch.randn(32, 32), "x")
    h = rec.call("aten.mm.default", x, x)
    normed, _, _ = rec.call("aten.native_layer_norm.default", h, [32], None, None, 1e-5)
    e = rec.call("aten.exp.default", normed)
    s = rec.call("aten.mul.Tensor", e, h)
    r = rec.call("aten.add.Tensor", s, normed)
    return rec, rec.finish([r])


def reasons(plan):
    return {(o.op, o.reason.split(";")[-1].strip()) for o in plan.report.outside}


def test_copies_are_made_as_the_options_say(cache):
    rec, graph = chain()
    schedule = Schedule.program_order(graph)
    none, _ = check(rec, graph, schedule, cache, ArenaOptions("none"))
    assert none.report.copied == none.report.copied_bytes == 0
    assert ("aten.native_layer_norm.default", "nothing is copied") in reasons(none)
    everything, executable = check(rec, graph, schedule, cache, ArenaOptions("all"))
    assert everything.report.copied == 3
    assert everything.report.copied_bytes == 32 * 32 * 4 + 2 * 32 * 4
    assert (
        "native_layer_norm = place_of_native_layer_norm.copy_(native_layer_norm)" in executable.program.source
    )
    assert reasons(everything) == {("aten.add.Tensor", "it is handed back")}
    cheap, _ = check(rec, graph, schedule, cache, ArenaOptions("cheap", copy_share=0.0))
    assert cheap.report == none.report or cheap.report.copied == 0


def test_no_planned_storage_is_allocated(cache):
    rec, graph = chain()
    plan, executable = check(rec, graph, Schedule.program_order(graph), cache, ArenaOptions("none"))
    inputs = rec.fresh_inputs()
    executable.run(list(inputs))
    boxed = list(inputs)
    events = record(lambda: executable.run(boxed)).events
    allocated = Counter(event.signed_bytes for event in events if event.signed_bytes > 0)
    assert allocated == Counter(outside.nbytes for outside in plan.report.outside)


def test_a_result_whose_views_count_from_the_start_of_its_storage_is_outside(cache):
    rec = Recorder()
    x = rec.input(torch.randn(8, 8), "x")
    e = rec.call("aten.exp.default", rec.call("aten.mm.default", x, x))
    graph = rec.finish([rec.call("aten.sum.default", rec.call("aten.as_strided.default", e, [4], [2], 1))])
    plan, _ = check(rec, graph, Schedule.program_order(graph), cache, ArenaOptions("all"))
    assert ("aten.exp.default", "aten.as_strided.default counts from the start of its storage") in reasons(
        plan
    )
    assert plan.report.written == 1


def test_a_stand_in_for_a_repetition_makes_bytes_outside(cache):
    rec = Recorder()
    x = rec.input(torch.randn(4, 6), "x")
    mean, variance = rec.input(torch.zeros(6), "mean"), rec.input(torch.ones(6), "variance")
    y, *_ = rec.call("aten.native_batch_norm.default", x, None, None, mean, variance, True, 0.1, 1e-5)
    e = rec.call("aten.exp.default", y)
    graph = rec.finish([rec.call("aten.add.Tensor", e, y)])
    schedule = Schedule.from_nodes(graph, [0, 1, 0, 2])
    plan, _ = check(rec, graph, schedule, cache, ArenaOptions("all"))
    assert "another operation stands in when it is computed again" in {r for _, r in reasons(plan)}
    first = plan.places[0]
    assert first.out is not None
    assert first.out.op == "aten.native_batch_norm.out"


def test_results_on_top_of_operands_make_the_arena_smaller(cache):
    rec = Recorder()
    h = rec.call("aten.mm.default", rec.input(torch.randn(32, 32), "x"), rec.input(torch.randn(32, 32), "y"))
    for op in ("exp", "tanh", "sigmoid"):
        h = rec.call(f"aten.{op}.default", h)
    graph = rec.finish([rec.call("aten.sum.default", h)])
    schedule = Schedule.program_order(graph)
    apart, _ = check(rec, graph, schedule, cache, ArenaOptions())
    shared, _ = check(rec, graph, schedule, cache, ArenaOptions(in_place=True))
    assert apart.report.arena_bytes == 2 * 32 * 32 * 4
    assert shared.report.arena_bytes == 32 * 32 * 4


@pytest.mark.parametrize("options", [{"copies": "some"}, {"copy_share": -1.0}, {"copy_share": float("nan")}])
def test_options_that_cannot_be_meant(options):
    with pytest.raises(UsageError):
        ArenaOptions(**options)
