"""Programs for all shapes inside an arena: a valid layout for each shape, the bits of eager, the bytes that were predicted."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from neaptide.cost.model import EstimatedCost
from neaptide.cost.presets import get_device
from neaptide.errors import InfeasibleBudget, LayoutProblemError, UsageError
from neaptide.ir.edits.with_sizes import with_sizes
from neaptide.layout.problem import ANYWHERE, Buffer, LayoutProblem
from neaptide.layout.result import Layout
from neaptide.layout.validate import check_layout
from neaptide.lower.program import Watch
from neaptide.ops import registry
from neaptide.outcome import Limits
from neaptide.planner.offload.host import HostSpace
from neaptide.planner.points.instances import FIRST, script_instances
from neaptide.planner.points.plan import Decisions, point_plan
from neaptide.runtime.arena.layout_by_shape import ArenaOfShapes
from neaptide.runtime.arena.out_probe import probe_outs
from neaptide.runtime.arena.plan import ArenaOptions
from neaptide.runtime.arena.results_by_shape import arena_results
from neaptide.runtime.arena.tensors_by_shape import Arenas, ShapePlaces
from neaptide.runtime.measuring.meter import LiveBytesMeter
from neaptide.runtime.shapes.limit_by_shape import PointsWithin
from neaptide.runtime.shapes.point_executable import PointExecutable, PointProgram
from neaptide.symbolic.size_expr import SizeExpr
from support.drawn import examples
from support.symbolic_steps import attention, for_all_shapes
from support.torch_programs import SEED, bits

MANY = 1 << 40
DEVICE = get_device("rtx3090")
LARGEST = {"B": 9, "T": 24}


def tries(count):
    return settings(max_examples=examples(count), deadline=None, suppress_health_check=[HealthCheck.too_slow])


class WithoutScratch(EstimatedCost):
    """Operations need no workspace, which the meter does not see."""

    def workspace_size(self, graph, node):
        return SizeExpr.const(0)


def plan_of(graph, **options):
    cost = WithoutScratch(DEVICE, registry())
    return point_plan(graph, cost, range(len(graph.nodes)), LARGEST, least_budget_bytes=0, **options)


def quick(copies):
    return ArenaOptions(copies, limits=Limits(work=500), shape_limits=Limits(work=200))


def arena_of(plan, options=None, budget=MANY):
    chosen = options or quick("all")
    decision = Decisions(plan).of(LARGEST, budget)
    outs = probe_outs(with_sizes(plan.shaped.graph, {"B": 3, "T": 5}), registry())
    instances = script_instances(plan.shaped, decision.script)
    results = arena_results(plan, registry(), outs, DEVICE, chosen, decision, instances)
    return ArenaOfShapes(plan, results, chosen, decision)


GRAPH = for_all_shapes(layers=2, highest=64)
PLAN = plan_of(GRAPH)
ARENAS = {copies: arena_of(PLAN, quick(copies)) for copies in ("all", "cheap", "none")}


def runner(arena):
    def forget():
        executable.let_go()

    places = ShapePlaces(arena, Arenas(forget), lasting=True)
    executable = PointExecutable(PointProgram(PointsWithin(arena.plan, MANY), "test", places=places))
    return executable


def reachable(sizes, share):
    """A budget of about that share of what a shape needs beside what the caller owns, that can be kept."""
    whole = PLAN.shaped.at(sizes).peak_bytes
    persistent = PLAN.shaped.persistent_size.evaluate(sizes)
    budget = persistent + int((whole - persistent) * share)
    return max(budget, Decisions(PLAN).of(sizes, budget).script.peak_bytes)


SHAPES = st.fixed_dictionaries({"B": st.integers(1, 64), "T": st.integers(1, 64)})


@tries(60)
@given(SHAPES, st.floats(0.4, 1.0), st.sampled_from(sorted(ARENAS)))
def test_any_shape_has_a_valid_layout_of_the_predicted_bytes(sizes, share, copies):
    arena = ARENAS[copies]
    decision = Decisions(PLAN).of(sizes, reachable(sizes, share))
    made = arena.at(sizes, decision)
    instances, sizes_of = made.instances, decision.sizes.storage_bytes
    inside = [n for n, offset in enumerate(made.offsets.tolist()) if offset != ANYWHERE]
    buffers = [
        Buffer(
            str(n),
            int(instances.starts[n]),
            int(instances.ends[n]),
            sizes_of[instances.storages[n]],
            alignment=64,
        )
        for n in inside
    ]
    layout = Layout(tuple(made.offsets[inside].tolist()), made.arena_bytes)
    check_layout(LayoutProblem(tuple(buffers)), layout)
    assert made.arena_bytes >= made.live_bytes
    assert made.peak_bytes >= decision.script.peak_bytes
    assert made.peak_bytes == made.peak_with_workspace_bytes  # there is no scratch here
    assert arena.at(sizes, decision) is made


@tries(60)
@given(SHAPES, st.floats(0.4, 1.0))
def test_instances_have_the_bytes_of_the_script(sizes, share):
    decision = Decisions(PLAN).of(sizes, reachable(sizes, share))
    found = script_instances(PLAN.shaped, decision.script)
    nbytes = np.array(decision.sizes.storage_bytes)[found.storages]
    live = [
        int(nbytes[(found.starts <= step) & (step < found.ends)].sum()) for step in range(len(found.nodes))
    ]
    persistent = PLAN.shaped.persistent_size.evaluate(sizes)
    assert persistent + max(live) == decision.script.peak_bytes
    first = found.runs == FIRST
    assert found.nodes[first].tolist() == list(PLAN.shaped.units.order)
    assert found.nodes[~first].tolist() == list(decision.script.repeated)
    during = [live[step] for step in np.flatnonzero(first)]
    assert [persistent + one for one in during] == decision.script.during[:-1].tolist()


@tries(24)
@given(st.data())
def test_any_sequence_of_shapes_has_eagers_bits_and_the_predicted_bytes(data):
    arena = ARENAS[data.draw(st.sampled_from(sorted(ARENAS)))]
    executable = runner(arena)
    largest = 0
    for _ in range(3):
        sizes = {"B": data.draw(st.integers(1, 9)), "T": data.draw(st.integers(1, 24))}
        executable.budget_bytes = MANY
        budget = reachable(sizes, data.draw(st.floats(0.5, 1.0)))
        found = arena.within(executable.decisions, sizes, budget)
        while found.peak_bytes > budget:
            budget = found.peak_bytes
            found = arena.within(executable.decisions, sizes, budget)
        executable.budget_bytes = budget
        before, largest = executable.places.block_bytes, max(largest, found.arena_bytes)
        meter = check(executable, sizes)
        assert executable.inside is found
        assert highest_byte(executable) == found.arena_bytes
        spare = executable.places.block_bytes - found.arena_bytes
        assert 0 <= spare <= largest - found.arena_bytes
        assert executable.totals.peak_bytes == found.peak_bytes + spare <= budget
        if before <= executable.places.block_bytes:  # else the block of the run before was there at first
            assert meter.peak_bytes == found.peak_bytes + spare


def highest_byte(executable):
    """One past the last byte of the block that a tensor of the last run has."""
    kept = executable.places._kept[executable.inside]
    tensors = [t for t in (*kept.first, *(one for run in kept.again for one in run)) if t is not None]
    return max(((t.storage_offset() + t.numel()) * t.element_size() for t in tensors if t.numel()), default=0)


def check(executable, sizes):
    recorder, _ = attention(sizes["B"], sizes["T"], layers=2)
    inputs = recorder.fresh_inputs()
    torch.manual_seed(SEED)
    block = executable.places._block
    owned = [t for t in inputs if isinstance(t, torch.Tensor)]
    with LiveBytesMeter([*owned, *([] if block is None else [block.block])]) as meter:
        del block
        outputs = executable.run(list(inputs))
    graph = executable.program.graph
    assert [bits(o) for o in outputs] == [bits(recorder.data[v]) for v in graph.outputs]
    assert [bits(t) for t in inputs] == [bits(recorder.data[v]) for v in graph.inputs]
    return meter


def test_a_block_that_is_too_large_for_the_budget_of_a_small_shape_is_replaced():
    executable = runner(ARENAS["all"])
    check(executable, {"B": 8, "T": 7})
    sizes = {"B": 2, "T": 7}
    found = ARENAS["all"].within(executable.decisions, sizes, MANY)
    executable.budget_bytes = found.peak_with_workspace_bytes
    check(executable, sizes)
    assert executable.places.block_bytes == found.arena_bytes
    assert executable.totals.peak_bytes == executable.budget_bytes


def test_a_budget_that_no_arena_keeps_is_refused_before_anything_runs():
    executable, sizes = runner(ARENAS["all"]), {"B": 8, "T": 16}
    executable.budget_bytes = PLAN.shaped.persistent_size.evaluate(sizes) + 64
    inputs = attention(8, 16, layers=2)[0].fresh_inputs()
    with pytest.raises(InfeasibleBudget, match="the arena and what is outside"):
        executable.run(list(inputs))


def test_what_waits_on_the_host_or_lies_on_operands_is_refused():
    with pytest.raises(UsageError, match="results on top of operands"):
        arena_of(PLAN, ArenaOptions(in_place=True))
    stored = plan_of(GRAPH, host=HostSpace.of(GRAPH, DEVICE, 1 << 20))
    with pytest.raises(UsageError, match="room on the host"):
        ArenaOfShapes(stored, ARENAS["all"].results, ArenaOptions(), Decisions(stored).of(LARGEST, MANY))
    whole = stored.shaped.at(LARGEST).peak_bytes
    script = Decisions(stored).of(LARGEST, whole * 7 // 10).script
    assert script.host_bytes
    with pytest.raises(LayoutProblemError, match="host"):
        script_instances(stored.shaped, script)


def test_values_are_watched_where_they_lie():
    told = ARENAS["all"].results.first.told
    inside = [GRAPH.nodes[node].outputs[one.inside.index(True)] for node, one in told.items()]
    watches = [Watch(f"v{v}", v, GRAPH.values[v].version) for v in (*inside[::5], GRAPH.outputs[0])]
    places = ShapePlaces(ARENAS["all"], Arenas(lambda: None), lasting=True)
    executable = PointExecutable(
        PointProgram(PointsWithin(PLAN, MANY), "test", watches=watches, places=places)
    )
    recorder, _ = attention(3, 5, layers=2)
    seen = {}
    inputs = list(recorder.fresh_inputs())
    torch.manual_seed(SEED)
    executable.run(inputs, seen)
    assert [bits(seen[w.name]) for w in watches] == [bits(recorder.data[w.value]) for w in watches]


def test_a_larger_shape_gets_a_larger_block_and_the_old_tensors_go():
    executable = runner(ARENAS["all"])
    check(executable, {"B": 2, "T": 7})
    small = executable.places.block_bytes
    check(executable, {"B": 8, "T": 7})
    large = executable.places.block_bytes
    assert large > small
    assert len(executable.places._kept) == 1
    check(executable, {"B": 2, "T": 7})
    assert executable.places.block_bytes == large


def test_a_layout_that_does_not_fit_is_evicted_for():
    arena, sizes = ARENAS["all"], {"B": 8, "T": 16}
    executable = runner(arena)
    plain = arena.at(sizes, executable.decisions.of(sizes, MANY))
    budget = plain.peak_bytes - 1
    assert not executable.decisions.of(sizes, budget).script.evictions
    executable.budget_bytes = budget
    meter = check(executable, sizes)
    assert executable.totals.evicted
    assert meter.peak_bytes <= budget


def test_a_budget_that_changes_on_the_way_counts_from_the_next_run_on():
    executable, sizes = runner(ARENAS["all"]), {"B": 4, "T": 9}
    check(executable, sizes)
    whole = executable.totals
    scope = executable.current.scope
    name = executable.program.begin
    begin = scope[name]

    def lower(held, dims):
        points = begin(held, dims)
        executable.budget_bytes = whole.peak_bytes - 64
        return points

    scope[name] = lower
    check(executable, sizes)
    assert executable.totals == whole
    scope[name] = begin
    check(executable, sizes)
    assert executable.totals.evicted
