"""One program for all shapes under a budget: the bits of eager, the bytes that are counted, the budget that is kept."""

from __future__ import annotations

import gc
from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from neaptide.cost.model import EstimatedCost
from neaptide.cost.presets import get_device
from neaptide.errors import InfeasibleBudget, LoweringError
from neaptide.lower.program import Watch
from neaptide.ops import registry
from neaptide.planner.offload.host import HostSpace
from neaptide.planner.points.choices.decide import POLICIES, least_cost_cover, policy
from neaptide.planner.points.plan import point_plan
from neaptide.runtime.measuring.meter import LiveBytesMeter
from neaptide.runtime.shapes.limit_by_shape import PointsWithin
from neaptide.runtime.shapes.point_executable import PointExecutable, PointProgram
from neaptide.symbolic.size_expr import SizeExpr
from support.dispatch_modes import TimelineMeter
from support.symbolic_steps import attention, for_all_shapes
from support.together import together
from support.torch_programs import SEED, bits, random_program

MANY, HOST = 1 << 40, 1 << 20
DEVICE = get_device("rtx3090")
SLOW = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


class WithoutScratch(EstimatedCost):
    """Operations need no workspace, which the meter does not see."""

    def workspace_size(self, graph, node):
        return SizeExpr.const(0)


def plan_of(graph, sample, *, least=0, host_bytes=None):
    host = None if host_bytes is None else HostSpace.of(graph, DEVICE, host_bytes)
    cost = WithoutScratch(DEVICE, registry())
    order = range(len(graph.nodes))
    return point_plan(graph, cost, order, sample, least_budget_bytes=least, host=host)


def program_of(plan, budget=MANY, *, watches=(), **how):
    return PointExecutable(PointProgram(PointsWithin(plan, budget, **how), "test", watches=watches))


def runner(graph, sample, budget=MANY, *, chosen=least_cost_cover, **options):
    return program_of(plan_of(graph, sample, **options), budget, policy=chosen)


def check(executable, recorder, graph):
    """The bits of the recorded run, and no more bytes than counted; gives what was counted."""
    inputs = recorder.fresh_inputs()
    tensors = [t for t in inputs if isinstance(t, torch.Tensor)]
    torch.manual_seed(SEED)
    with LiveBytesMeter(tensors) as meter:
        outputs = executable.run(list(inputs))
    assert [bits(o) for o in outputs] == [bits(recorder.data[v]) for v in graph.outputs]
    assert [bits(t) for t in inputs] == [bits(recorder.data[v]) for v in graph.inputs]
    assert meter.peak_bytes <= executable.totals.peak_bytes <= executable.budget_bytes
    return meter, executable.totals


def tight(executable, sizes):
    """The lowest of some budgets that the policy keeps for a shape; None where it keeps none."""
    whole = executable.plan.shaped.at(sizes).peak_bytes
    for share in (75, 80, 85, 90, 95):
        budget = whole * share // 100
        if executable.decisions.of(sizes, budget).script.peak_bytes <= budget:
            return budget
    return None


def for_less(name, budget):
    """A policy that decides for fewer bytes than it is asked for."""
    return lambda situation: policy(name)(replace(situation, budget_bytes=budget))


# -- any program, any budget


@SLOW
@given(st.data())
def test_random_programs_under_any_budget(data):
    recorder, graph = random_program(data.draw)
    assume(not any(node.regions for node in graph.nodes))
    name = data.draw(st.sampled_from(sorted(POLICIES)))
    host = data.draw(st.sampled_from([None, 100, HOST]))
    whole = plan_of(graph, {}).shaped.at({}).peak_bytes
    wanted = data.draw(st.integers(whole // 4, whole))
    executable = runner(graph, {}, chosen=for_less(name, wanted), host_bytes=host)
    # What is found is a peak that can be kept, whether or not it is the one that was wanted.
    executable.budget_bytes = max(executable.decisions.of({}, whole).script.peak_bytes, wanted)
    assume(executable.decisions.of({}, executable.budget_bytes).script.peak_bytes <= executable.budget_bytes)
    check(executable, recorder, graph)


# -- any shape


@together(
    "name, host", [("least_cost_cover", HOST), *((name, None) for name in POLICIES)], quick=(0, len(POLICIES))
)
def test_one_program_keeps_the_budget_of_every_shape_with_exactly_the_counted_bytes(name, host):
    graph = for_all_shapes(layers=3)
    executable = runner(graph, {"B": 2, "T": 3}, chosen=policy(name), host_bytes=host)
    for batch, tokens in [(4, 16), (9, 5), (4, 16)]:
        sizes = {"B": batch, "T": tokens}
        recorder, _ = attention(batch, tokens, layers=3)
        whole = executable.plan.shaped.at(sizes).peak_bytes
        executable.budget_bytes = MANY
        meter, totals = check(executable, recorder, graph)
        assert (meter.peak_bytes, totals.evicted, totals.repeated) == (totals.peak_bytes, 0, 0)
        assert meter.peak_bytes == whole
        executable.budget_bytes = tight(executable, sizes)
        meter, totals = check(executable, recorder, graph)
        assert meter.peak_bytes == totals.peak_bytes
        assert totals.evicted


@together("share", [33, 45, 51], quick=(1,))
def test_what_is_recomputed_for_others_alone_is_dropped_again_in_the_counted_bytes(share):
    graph, sizes = for_all_shapes(layers=3), {"B": 9, "T": 5}
    recorder, _ = attention(9, 5, layers=3)
    wanted = runner(graph, sizes).plan.shaped.at(sizes).peak_bytes * share // 100
    executable = runner(graph, sizes, chosen=for_less("least_cost_cover", wanted))
    script = executable.decisions.of(sizes, MANY).script
    dropped_again = [e for e in script.evictions if e.meanwhile]
    assert dropped_again
    assert all(e.begin < position < e.back for e in dropped_again for position in e.meanwhile)
    meter, totals = check(executable, recorder, graph)
    assert meter.peak_bytes == totals.peak_bytes == script.peak_bytes


def test_both_ways_back():
    graph, sizes = for_all_shapes(layers=3), {"B": 4, "T": 16}
    recorder, _ = attention(4, 16, layers=3)
    whole = runner(graph, sizes).plan.shaped.at(sizes).peak_bytes
    _, recomputed = check(runner(graph, sizes, whole * 8 // 10), recorder, graph)
    assert recomputed.repeated
    assert not recomputed.reloaded
    plan = plan_of(graph, sizes, host_bytes=HOST)
    fixed = tuple(replace(c, again=(), sources=()) for c in plan.candidates)
    only_host = program_of(replace(plan, candidates=fixed), whole * 8 // 10)
    _, reloaded = check(only_host, recorder, graph)
    assert reloaded.reloaded == reloaded.evicted > 0
    assert not reloaded.repeated
    assert only_host.pool.live_bytes == 0
    assert only_host.pool.peak_bytes == only_host.decisions.of(sizes, whole * 8 // 10).script.host_bytes


def test_a_shape_that_cannot_be_kept_within_the_budget_is_refused_before_anything_runs():
    graph = for_all_shapes()
    executable = runner(graph, {"B": 2, "T": 3}, 2000)
    recorder, _ = attention(8, 12)
    with pytest.raises(InfeasibleBudget, match=r"does not stay within .* for B = 8, T = 12") as error:
        executable.run(recorder.fresh_inputs())
    assert error.value.smallest_peak_bytes > 2000
    assert executable.interruption is None
    check(executable, attention(1, 2)[0], graph)


def test_watched_values_are_copied_whatever_is_evicted():
    graph, sizes = for_all_shapes(layers=2), {"B": 4, "T": 16}
    recorder, _ = attention(4, 16, layers=2)
    (probabilities, *_) = (n.outputs[0] for n in graph.nodes if n.op == "aten.native_dropout.default")
    watches = [Watch("probabilities", probabilities, 0), Watch("x", graph.inputs[0], 0)]
    plan = plan_of(graph, sizes)
    executable = program_of(plan, watches=watches)
    executable.budget_bytes = tight(executable, sizes)
    torch.manual_seed(SEED)
    copies = {}
    inputs = recorder.fresh_inputs()
    executable.run(list(inputs), copies)
    assert executable.totals.evicted
    assert torch.equal(copies["probabilities"], recorder.data[probabilities])
    assert torch.equal(copies["x"], inputs[0])
    with pytest.raises(LoweringError, match="never made"):
        program_of(plan, watches=[Watch("x", probabilities, 1)])


# -- memory is taken away on the way


class At(TorchDispatchMode):
    """Calls something before an operation of a run, counted from 0."""

    def __init__(self, number, then):
        super().__init__()
        self.number, self.then, self.count = number, then, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if self.count == self.number:
            self.then()
        self.count += 1
        return func(*args, **(kwargs or {}))


@together("number", [5, 10, 30, 50], quick=(2,))
def test_memory_that_is_taken_away_in_mid_run_is_given_up_at_the_next_point(number):
    graph, sizes = for_all_shapes(layers=3), {"B": 4, "T": 16}
    executable = runner(graph, sizes)
    recorder, _ = attention(4, 16, layers=3)
    whole = executable.plan.shaped.at(sizes).peak_bytes
    less = whole * 85 // 100

    def take():
        executable.budget_bytes = less

    torch.manual_seed(SEED)
    inputs = recorder.fresh_inputs()
    with TimelineMeter(inputs) as meter, At(number, take):
        outputs = executable.run(list(inputs))
    assert [bits(o) for o in outputs] == [bits(recorder.data[v]) for v in graph.outputs]
    totals = executable.totals
    assert totals.decisions == 1
    assert max(nbytes for _, nbytes in meter.timeline[len(inputs) + number + 1 :]) <= less
    assert totals.evicted
    # The next call knows from its beginning; memory that is given back is used again.
    check(executable, recorder, graph)
    assert executable.totals.decisions == 0
    executable.budget_bytes = MANY
    _, after = check(executable, recorder, graph)
    assert (after.repeated, after.evicted) == (0, 0)


# -- what it costs where nothing is evicted


def test_a_run_that_fits_stops_at_no_point_and_nothing_stays_behind_it():
    graph, sizes = for_all_shapes(layers=2), {"B": 2, "T": 3}
    executable = runner(graph, sizes)
    text = executable.program.source
    recorder, _ = attention(2, 3, layers=2)
    executable.run(recorder.fresh_inputs())
    points = executable.plan.points
    assert text.count("point.act(") == len(points)
    assert all(f"if point.due <= {p}: point.act({p})" in text for p in points)
    assert executable.totals.decisions == executable.totals.repeated == executable.totals.evicted == 0
    inputs = recorder.fresh_inputs()
    gc.collect()
    with LiveBytesMeter(inputs) as meter:
        outputs = executable.run(list(inputs))
        held = sum(t.untyped_storage().nbytes() for t in outputs)
        assert meter.live_bytes == meter.persistent_bytes + held
        del outputs
        assert meter.live_bytes == meter.persistent_bytes
