from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from neaptide.analysis.profile_bytes import memory_profile
from neaptide.ir.builder import GraphBuilder
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import MergeMap, SliceMap
from neaptide.ir.schedule import Schedule
from neaptide.ir.values import Kind
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.problem import compile_problem
from neaptide.symbolic.size_expr import SizeExpr
from neaptide_corpus.training_steps import toy_registry, transformer_step
from support.drawn import graphs, schedules


def chain():
    b = GraphBuilder("chain", toy_registry())
    w = b.input("w", (2,), kind=Kind.PARAMETER)
    (a,) = b.node("toy.mix", w, outputs=["a: f32[10]"])
    (r,) = b.node("toy.relu_", a, outputs=["r: f32[10] @a"])
    (c,) = b.node("toy.mix", r, outputs=["c: f32[5]"])
    (d,) = b.node("toy.mix", c, outputs=["d: f32[1]"])
    b.output(d)
    return b.finish()


def test_operands_and_outputs_are_together_during_a_step():
    profile = memory_profile(chain(), Schedule.program_order(chain()), workspace={3: 50})
    assert profile.bytes_at == (48, 48, 68, 32)
    assert (profile.peak_step, profile.peak_bytes) == (2, 68)
    assert (profile.peak_with_workspace_step, profile.peak_with_workspace_bytes) == (3, 82)
    assert profile.persistent_bytes == 8
    assert [(row.name, row.nbytes, row.kind) for row in profile.live_at_peak] == [
        ("a", 40, Kind.TEMPORARY),
        ("c", 20, Kind.TEMPORARY),
        ("w", 8, Kind.PARAMETER),
    ]


def test_given_sizes_replace_recorded_ones():
    graph = chain()
    storage = graph.storages[1].id
    profile = memory_profile(graph, Schedule.program_order(graph), storage_bytes={storage: 1000})
    assert profile.peak_bytes == 1028


def test_symbolic_sizes_are_evaluated_under_the_binding():
    b = GraphBuilder("dynamic", toy_registry())
    x = b.input("x", (SizeExpr.dim("B"),))
    (a,) = b.node("toy.mix", x, outputs=["a: f32[{B}]"])
    b.output(a)
    graph = b.finish()
    assert memory_profile(graph, Schedule.program_order(graph), binding={"B": 7}).peak_bytes == 56


def test_devices_are_counted_apart_and_the_larger_one_is_the_main_one():
    b = GraphBuilder("devices", toy_registry())
    x = b.input("x", (1,))
    g = b.input("g", (100,), device="cuda:0")
    (a,) = b.node("toy.mix", x, outputs=["a: f32[4]"])
    b.output(a, g)
    graph = b.finish()
    profile = memory_profile(graph, Schedule.program_order(graph), workspace={0: 9})
    assert profile.device == "cuda:0"
    assert (profile.peak_bytes, profile.peak_with_workspace_bytes) == (400, 400)
    on_cpu = memory_profile(graph, Schedule.program_order(graph), workspace={0: 9}, device="cpu")
    assert (on_cpu.peak_bytes, on_cpu.peak_with_workspace_bytes) == (20, 29)


def test_a_program_without_nodes_holds_what_the_caller_owns():
    b = GraphBuilder("empty")
    b.input("x", (3,))
    graph = b.finish()
    profile = memory_profile(graph, Schedule.program_order(graph))
    assert (profile.peak_bytes, profile.peak_step, profile.bytes_at) == (12, None, ())
    assert memory_profile(Graph((), (), (), (), ()), Schedule(())).peak_bytes == 0


def test_a_loop_is_charged_with_what_its_body_holds_at_its_peak():
    inner = GraphBuilder("body", toy_registry())
    part = inner.input("part", (2,))
    (h,) = inner.node("toy.mix", part, outputs=["h: f32[30]"])
    (o,) = inner.node("toy.mix", h, outputs=["o: f32[2]"])
    inner.output(o)
    b = GraphBuilder("loop", toy_registry())
    x = b.input("x", (8,))
    (y,) = b.loop(
        inner.finish(),
        4,
        [x],
        outputs=["y: f32[8]"],
        slices=[SliceMap(0, 0, SizeExpr.const(2))],
        merges=[MergeMap(0, "concat")],
    )
    b.output(y)
    graph = b.finish()
    profile = memory_profile(graph, Schedule.program_order(graph))
    assert profile.bytes_at == (32 + 32 + 128,)
    assert profile.bytes_at_by_kind[Kind.TEMPORARY] == (128,)
    assert profile.workspace_at == (0,)

    both = memory_profile(graph, Schedule.program_order(graph), workspace={0: 128 + 10})
    assert both.bytes_at == profile.bytes_at
    assert both.workspace_at == (10,)
    problem = compile_problem(graph, toy_registry(), workspace={0: 128 + 10})
    evaluator = Evaluator(problem)
    assert evaluator.peak_without_workspace == both.peak_bytes
    assert evaluator.peak == both.peak_with_workspace_bytes


def test_kinds_of_a_training_step_add_up():
    step = transformer_step(layers=2)
    profile = memory_profile(step.graph, Schedule.program_order(step.graph))
    split = profile.bytes_at_by_kind
    assert [sum(row) for row in zip(*split.values(), strict=True)] == list(profile.bytes_at)
    assert {Kind.PARAMETER, Kind.ACTIVATION, Kind.GRADIENT, Kind.OPTIMIZER_STATE, Kind.OUTPUT} <= split.keys()


@given(st.data())
def test_no_legal_order_changes_what_one_node_needs(data):
    graph = data.draw(graphs(min_nodes=1))
    first = memory_profile(graph, Schedule.program_order(graph))
    other = memory_profile(graph, data.draw(schedules(graph)))
    assert first.persistent_bytes == other.persistent_bytes
    assert min(first.bytes_at) >= first.persistent_bytes
    assert sum(row.nbytes for row in other.live_at_peak) == other.peak_bytes
