"""No plan is faster than its bound, or lower than the floor; every legal sequence obeys the program."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neaptide.analysis.legality.schedule import check_schedule
from neaptide.errors import NeaptideError
from neaptide.ir.builder import GraphBuilder
from neaptide.ir.schedule import Schedule
from neaptide.outcome import LimitGuard, Limits
from neaptide.planner.objective import PlannedSequence
from neaptide.planner.portfolio import plan_sequence
from neaptide.planner.recompute.bounds.certificate import JointRounds, recompute_bound
from neaptide.planner.recompute.bounds.floor import floor_bound, outputs_bound, pinned_bytes
from neaptide.planner.recompute.bounds.joint_lifetimes import joint_profile
from neaptide.planner.recompute.bounds.joint_program import JointProgram, JointSolution
from neaptide.planner.recompute.bounds.step_tables import StepTables
from neaptide.planner.strategies import program_order
from neaptide.schedule.problem import compile_problem
from neaptide.schedule.recompute_form import InstanceNode, from_nodes
from neaptide_corpus.random_graphs import random_graph
from neaptide_corpus.training_steps import conv_step, toy_registry, transformer_step
from planner.planner_problems import compiled, instance, least_seconds, random_chain, random_instance
from support.drawn import examples, graphs
from support.together import together


@given(st.integers(0, 10**6), st.integers(4, 7), st.floats(0.4, 1.0))
@settings(max_examples=examples(150), deadline=None)
def test_no_sequence_is_faster_than_the_bound(seed, count, share):
    step = random_instance(seed, count)
    budget = int(share * program_order.baseline(step).peak_with_workspace_bytes)
    best = least_seconds(step, budget, most=3)
    bound = recompute_bound(step, budget)
    if best is not None:
        assert not bound.is_infeasible
        assert bound.seconds <= best + 1e-9


def test_on_chains_that_must_recompute_the_bound_says_so_and_is_sometimes_the_optimum():
    cases = met = 0
    for seed in range(8):
        step = random_chain(seed, 4)
        budget = int(0.8 * program_order.baseline(step).peak_with_workspace_bytes)
        best = least_seconds(step, budget)
        bound = recompute_bound(step, budget)
        if best is None or best == step.baseline_seconds:
            continue
        cases += 1
        assert step.baseline_seconds < bound.seconds <= best + 1e-9
        met += math.isclose(bound.seconds, best, rel_tol=1e-4)
    assert cases >= 5
    assert met >= 1


@given(st.data(), st.floats(0.3, 1.0))
@settings(deadline=None)
def test_plans_of_any_graph_keep_the_bound_of_their_order(data, share):
    graph = data.draw(graphs(min_nodes=2))
    step = compile_problem(graph, toy_registry())
    budget = int(share * program_order.baseline(step).peak_with_workspace_bytes)
    outcome = plan_sequence(step, budget, Limits(work=500))
    plan = outcome.require()
    if plan.peak_with_workspace_bytes > budget:
        return
    bound = recompute_bound(step, budget, sequence=plan.sequence)
    assert not bound.is_infeasible
    assert bound.seconds <= plan.seconds + 1e-9 * step.baseline_seconds
    assert outcome.termination.bound <= plan.seconds


@together(
    "made", [transformer_step(layers=2, dropout=True), conv_step(blocks=3, batch=32)], ids=["gpt", "conv"]
)
def test_the_choice_of_steps_finds_nearly_the_bound_of_all_steps(made):
    step = compiled(made)
    peak = program_order.baseline(step).peak_with_workspace_bytes
    for share in (0.9, 0.7):
        budget = step.persistent_bytes + int(share * (peak - step.persistent_bytes))
        some = recompute_bound(step, budget).seconds - step.baseline_seconds
        tables = StepTables(step, None)
        above = np.flatnonzero(tables.profile > budget).tolist()
        every = max(JointProgram(tables, (position,), budget).relax().bound for position in above)
        assert every > 0
        assert some >= 0.9 * every


def test_room_for_all_costs_nothing_and_room_for_nothing_is_refuted():
    step = compile_problem(random_graph(4, 12), toy_registry())
    peak = program_order.baseline(step).peak_with_workspace_bytes
    assert recompute_bound(step, peak).seconds == step.baseline_seconds
    assert recompute_bound(step, step.lower_bound_bytes - 1).is_infeasible


@together("family", ["residual", "skips", "layered"], quick=("skips",))
def test_rounds_lift_the_bound_of_the_best_single_step(family):
    tables = StepTables(instance(family, seed=1), None)
    budget = int(0.5 * tables.profile.max())
    first = [int(tables.profile.argmax())]
    rounds = JointRounds(tables, budget, None)
    rounds.run(first)
    assert JointProgram(tables, first, budget).relax().bound < rounds.bound


def test_a_time_limit_ends_the_search_with_what_holds():
    step = compiled(transformer_step(layers=2))
    peak = program_order.baseline(step).peak_with_workspace_bytes
    late = LimitGuard(Limits(time_s=0.0))
    assert recompute_bound(step, int(0.8 * peak), guard=late).seconds == step.baseline_seconds
    for budget, guard in ((int(0.7 * peak), late), (0, None)):
        rounds = JointRounds(StepTables(step, None), budget, guard)
        rounds.run([step.node_count // 2])
        assert (rounds.best, rounds.is_infeasible) == (None, guard is None)


def test_a_view_does_not_ask_for_what_was_written_into_its_storage():
    # The view runs after the write, but nothing reads through it: the creator again is enough for it.
    b = GraphBuilder("late view", toy_registry())
    x = b.input("x", (4,))
    (a,) = b.node("toy.add", x, x, outputs=["a: f32[100]"])
    (r,) = b.node("toy.relu_", a, outputs=["r: f32[100] @a"])
    (s,) = b.node("toy.mix", r, outputs=["s: f32[1]"])
    (w,) = b.node("toy.add", x, x, outputs=["w: f32[100]"])
    (t,) = b.node("toy.mix", w, outputs=["t: f32[1]"])
    b.node("toy.view", a, outputs=["v: f32[10, 10] @a"])
    b.output(s, t)
    graph = b.finish()
    step = compile_problem(graph, toy_registry())
    sequence = (0, 1, 2, 3, 4, 0, 5)
    check_schedule(graph, Schedule.from_nodes(graph, sequence), toy_registry())
    plan = PlannedSequence.evaluate(step, sequence, "")
    assert plan.peak_with_workspace_bytes < program_order.baseline(step).peak_with_workspace_bytes
    bound = recompute_bound(step, plan.peak_with_workspace_bytes, sequence=sequence)
    assert bound.seconds == pytest.approx(plan.seconds)
    assert bound.seconds <= plan.seconds
    # Nor is it out of reach when the write must not be repeated.
    refused = replace(step, refusals=("", "not twice", "", "", "", ""))
    tables = StepTables(refused, sequence)
    assert int(pinned_bytes(tables).max()) <= plan.peak_with_workspace_bytes
    assert not recompute_bound(refused, plan.peak_with_workspace_bytes, sequence=sequence).is_infeasible


@given(st.integers(0, 10**6), st.integers(3, 6))
@settings(max_examples=examples(120), deadline=None)
def test_no_sequence_has_a_lower_peak(seed, count):
    step = random_instance(seed, count)
    peak = program_order.baseline(step).peak_with_workspace_bytes
    bound = floor_bound(StepTables(step, None), peak)
    assert step.lower_bound_bytes <= bound <= peak
    assert outputs_bound(step) <= bound
    assert least_seconds(step, bound - 1, most=None) is None


def test_outputs_are_made_beside_each_other():
    # Two outputs of 4 bytes, each made from a storage of 8 bytes: the second needs its operand beside the first.
    step = from_nodes(
        [
            InstanceNode("a", 8, []),
            InstanceNode("b", 4, [0], out=True),
            InstanceNode("c", 8, []),
            InstanceNode("d", 4, [2], out=True),
        ]
    )
    assert step.lower_bound_bytes == 12
    assert outputs_bound(step) == 16
    assert floor_bound(StepTables(step, None), 99) == 16
    assert least_seconds(step, 16, most=None) is not None


@together("make", [transformer_step, conv_step])
def test_what_cannot_be_made_again_stays(make):
    step = compiled(make())
    tables = StepTables(step, None)
    pinned = pinned_bytes(tables)
    assert (pinned <= tables.profile).all()
    assert pinned.min() >= step.persistent_bytes
    peak = program_order.baseline(step).peak_with_workspace_bytes
    assert int(pinned.max()) <= floor_bound(tables, peak) <= peak


ANY = 1e9


def solved(step, positions, budget):
    program = JointProgram(StepTables(step, None), positions, budget, to_end=positions)
    return program, program.relax()


def share_of_peak(step, share):
    return int(share * program_order.baseline(step).peak_with_workspace_bytes)


@given(st.integers(0, 10**6), st.integers(4, 6), st.booleans(), st.floats(0.4, 1.0), st.data())
@settings(max_examples=examples(120), deadline=None)
def test_several_steps_together_stay_below_the_optimum_and_above_each_alone(seed, count, chain, share, data):
    step = random_chain(seed, count // 2 + 1) if chain else random_instance(seed, count)
    budget = share_of_peak(step, share)
    places = st.lists(st.integers(0, step.node_count - 1), min_size=1, max_size=4, unique=True)
    positions = sorted(data.draw(places))
    best = least_seconds(step, budget, most=3)
    program, relaxed = solved(step, positions, budget)
    if best is None:
        return
    extra = best - step.baseline_seconds
    whole = program.solve_whole(ANY, nodes=1000)
    assert not relaxed.is_infeasible
    assert relaxed.bound <= whole.bound + 1e-6 <= extra + 2e-6
    for position in positions:
        assert solved(step, [position], budget)[1].bound <= relaxed.bound + 1e-6


@given(st.integers(0, 10**6), st.integers(4, 14), st.integers(0, 10**6), st.data())
@settings(max_examples=examples(300), deadline=None)
def test_every_legal_sequence_obeys_the_program_within_its_own_peak(seed, count, draws, data):
    # Views, in-place writers, several outputs, random numbers and refusals; what is not run again is forbidden to.
    graph = data.draw(graphs(min_nodes=count, max_nodes=count))
    step = compile_problem(graph, toy_registry())
    sequence = with_repetitions(graph, step, random.Random(draws))
    plan = PlannedSequence.evaluate(step, sequence, "")
    tables = StepTables(step, sequence)
    places = st.lists(st.integers(0, count - 1), min_size=1, max_size=5, unique=True)
    positions = sorted(data.draw(places))
    budget = plan.peak_with_workspace_bytes
    program = JointProgram(tables, positions, budget)
    answer = program.relax()
    assert not answer.is_infeasible
    if not answer.held:
        return
    # By window, what runs again in it.
    windows = [set() for _ in range(len(positions) + 1)]
    seen, window = set(), 0
    for node in sequence:
        if node in seen:
            windows[window].add(node)
        else:
            window += len(seen) in positions
        seen.add(node)
    high = program._program._high
    for again, ran in zip(program._again, windows[1:], strict=True):
        idle = [node for node in range(step.node_count) if node not in ran and again[node] >= 0]
        high[again[idle]] = 0.0
    seconds = sum(step.repeat_seconds[node] for ran in windows[1:] for node in ran)
    kept = program.relax()
    assert not kept.is_infeasible
    assert kept.bound <= seconds + 1e-6
    assert recompute_bound(step, budget, sequence=sequence).seconds <= plan.seconds * (1 + 1e-9)
    # An answer in whole numbers, not only a bound.
    assert not program.size or program.solve_whole(ANY, nodes=1000).held


def with_repetitions(graph, step, draw):
    """Program order with a few nodes run again, wherever that is legal."""
    sequence = list(range(step.node_count))
    for _ in range(draw.randint(0, 12)):
        node = draw.choice(sequence)
        place = draw.randint(sequence.index(node) + 1, len(sequence))
        longer = [*sequence[:place], node, *sequence[place:]]
        try:
            check_schedule(graph, Schedule.from_nodes(graph, longer), toy_registry())
        except NeaptideError:
            continue
        sequence = longer
    return tuple(sequence)


@together("seed", range(12), quick=(0, 5, 9))
def test_a_level_cuts_the_bound_and_nothing_else(seed):
    step = random_chain(seed, 6)
    positions = [6, 8]
    program, relaxed = solved(step, positions, share_of_peak(step, 0.75))
    if relaxed.is_infeasible:
        return
    whole = program.solve_whole(ANY, nodes=1000)
    for factor in (0.5, 0.99, 1.01, 1.5):
        level = factor * whole.bound
        cut = program.solve_whole(level, nodes=1000)
        assert cut.bound == pytest.approx(max(min(level, whole.bound), relaxed.bound), rel=1e-3)


def test_two_steps_ask_for_more_than_the_dearer_one():
    # Either step has room for one of the two storages that are used after it; what is held at the first is
    # what the second must drop.
    nodes = [
        InstanceNode("a", 4, [], seconds=3.0),
        InstanceNode("b", 4, [], seconds=3.0),
        InstanceNode("wide", 6, [], seconds=1.0),
        InstanceNode("use a", 1, [0], seconds=1.0),
        InstanceNode("use b", 1, [1], seconds=1.0),
        InstanceNode("wide again", 6, [], seconds=1.0),
        InstanceNode("last", 1, [0, 1], seconds=1.0, out=True),
    ]
    step = from_nodes(nodes)
    budget = 10
    alone = [solved(step, [position], budget)[1].bound for position in (2, 5)]
    both = solved(step, [2, 5], budget)[1]
    assert alone == pytest.approx([3.0, 3.0], abs=1e-6)
    assert both.bound == pytest.approx(6.0, abs=1e-6)
    assert least_seconds(step, budget, most=3) == pytest.approx(step.baseline_seconds + 6.0)
    assert min(both.multipliers) >= 0.0


def test_a_step_without_room_for_its_operands_is_infeasible():
    draw = random.Random(0)
    nodes = [
        InstanceNode(f"n{i}", 5, [i - 1] if i else [], seconds=draw.random(), out=i == 3) for i in range(4)
    ]
    assert solved(from_nodes(nodes), [2], 9)[1].is_infeasible
    assert not solved(from_nodes(nodes), [2], 10)[1].is_infeasible


@given(st.integers(0, 10**6), st.integers(2, 12), st.data())
@settings(max_examples=examples(120), deadline=None)
def test_what_is_held_until_its_last_use_has_the_bytes_of_the_order(seed, count, data):
    tables = StepTables(random_instance(seed, count), None)
    places = st.lists(st.integers(0, count - 1), min_size=1, max_size=4, unique=True)
    positions = sorted(data.draw(places))
    held = tuple(
        (tables.made_before(p) & (tables.used_within(p, count) | tables.is_output)).astype(np.float64)
        for p in positions
    )
    again = (np.zeros(count),) * len(positions)
    solution = JointSolution(is_infeasible=False, bound=0.0, held=held, again=again)
    assert joint_profile(tables, positions, solution) == pytest.approx(tables.profile)


@given(st.integers(0, 10**6), st.integers(3, 8), st.floats(0.5, 0.95), st.data())
@settings(max_examples=examples(60), deadline=None)
def test_answers_fit_at_the_steps_of_their_program(seed, layers, share, data):
    tables = StepTables(random_chain(seed, layers), None)
    budget = int(share * tables.profile.max())
    places = st.lists(st.integers(1, 2 * layers - 1), min_size=1, max_size=4, unique=True)
    positions = sorted(data.draw(places))
    solution = JointProgram(tables, positions, budget).relax()
    if not solution.is_infeasible:
        profile = joint_profile(tables, positions, solution)
        assert (profile[positions] <= budget * (1 + 1e-6)).all()
