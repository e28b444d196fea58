"""What is cheap is dropped, or the fewest bytes are saved."""

from __future__ import annotations

from itertools import combinations

import pytest

from neaptide.outcome import Limits
from neaptide.planner.objective import PlanningProblem
from neaptide.planner.recompute.units import forward_units
from neaptide.planner.strategies import program_order
from neaptide.schedule.recompute_form import InstanceNode, from_nodes
from neaptide_corpus.training_steps import conv_step, pooled_step, transformer_step
from neaptide_peers.strategies import drop_cheap, min_cut, min_cut_ratios
from neaptide_peers.strategies.saved_cut import compute_intensive, saved_units, worth_saving
from peers.strategies.stage_instances import chain
from planner.planner_problems import check_sequence, compiled


def plan(made):
    step = compiled(made)
    found = drop_cheap.solve(PlanningProblem(step, step.persistent_bytes), Limits()).require()
    check_sequence(made.graph, found, None, made.registry)
    return step, found


def repeated(made, found):
    """Ops of nodes that run again, with how often."""
    counts = {}
    for node in range(len(made.graph.nodes)):
        again = found.sequence.count(node) - 1
        if again:
            counts.setdefault(made.graph.nodes[node].op.removeprefix("toy."), []).append(again)
    return counts


def test_a_chain_of_conv_norm_activation_and_pooling_keeps_its_convolutions():
    made = pooled_step(stages=4)
    step, found = plan(made)
    counts = repeated(made, found)
    assert "conv" not in counts
    assert "matmul" not in counts
    # All of them, once each; the classifier reads a view of the last pooled values.
    assert counts["batch_norm"] == counts["relu_"] == counts["max_pool"] == [1] * 4
    before = program_order.baseline(step)
    assert found.peak_bytes - step.persistent_bytes < 0.75 * (before.peak_bytes - step.persistent_bytes)
    assert found.seconds < 1.2 * before.seconds


def test_a_residual_stream_is_not_made_again_from_its_beginning():
    made = transformer_step(layers=8)
    step, found = plan(made)
    forward = forward_units(step, range(step.node_count))
    held = drop_cheap.held_units(step, forward)
    free = [u for u in forward.units if u not in held]
    assert free
    for unit in free:
        assert len(forward.missing([unit], held)) <= 4
    assert max(found.sequence.count(n) for n in range(step.node_count)) == 2
    assert found.seconds < 1.2 * step.baseline_seconds


def test_residual_convolutions_stay():
    made = conv_step(blocks=4)
    _, found = plan(made)
    assert set(repeated(made, found)) <= {"batch_norm", "add_", "relu_"}


def test_instances_say_by_their_numbers_what_is_cheap():
    chain = [
        InstanceNode("conv", 100, [], flops=1e6, moved=200.0, phase="fwd"),
        InstanceNode("norm", 100, [0], flops=100.0, moved=200.0, phase="fwd"),
        InstanceNode("conv", 100, [1], flops=1e6, moved=200.0, phase="fwd"),
        InstanceNode("back", 1, [0, 1, 2], moved=10.0, phase="bwd"),
    ]
    assert from_nodes(chain).is_contraction == (True, False, True, False)
    timed = [
        InstanceNode(n.name, n.size, n.deps, seconds=9.0 if n.name == "conv" else 1.0, phase=n.phase)
        for n in chain
    ]
    assert from_nodes(timed).is_contraction == (True, False, True, False)


STEPS = {
    "gpt": transformer_step(layers=6, dropout=True, vocab=256),
    "conv": conv_step(blocks=8, batch=32),
}


def suffices(forward, saved, banned):
    """Whether the backward can be run from what is saved."""
    need = {unit for reads in forward.reads for unit in reads}
    while need:
        unit = need.pop()
        if unit in saved:
            continue
        if forward.units[unit].is_pinned or unit in banned:
            return False
        need.update(forward.units[unit].operands)
    return True


@pytest.mark.parametrize("seed", range(30))
def test_the_cut_saves_the_fewest_bytes(seed):
    step = chain(seed, 7)
    forward = forward_units(step, range(step.node_count))
    banned = {unit for unit in forward.units if (unit + seed) % 3 == 0}
    saved = saved_units(forward, banned)
    assert suffices(forward, saved, banned)
    least = min(
        sum(forward.units[u].nbytes for u in chosen)
        for k in range(len(forward.units) + 1)
        for chosen in combinations(forward.units, k)
        if suffices(forward, chosen, banned)
    )
    assert sum(forward.units[u].nbytes for u in saved) == least


@pytest.mark.parametrize("seed", range(10))
def test_the_knapsack_picks_the_most_seconds(seed):
    step = chain(seed, 7)
    forward = forward_units(step, range(step.node_count))
    units = list(forward.units)
    room = forward.nbytes(units) // 2
    best = max(
        forward.seconds(chosen)
        for k in range(len(units) + 1)
        for chosen in combinations(units, k)
        if forward.nbytes(chosen) <= room
    )
    chosen = worth_saving(forward, units, room)
    assert forward.nbytes(chosen) <= room
    assert forward.seconds(chosen) >= best * (1 - 1e-3)


def test_contractions_are_what_takes_long_for_its_bytes():
    made = STEPS["gpt"]
    step = compiled(made)
    forward = forward_units(step, range(step.node_count))
    ops = {made.graph.nodes[c].op for c in compute_intensive(step, forward)}
    assert {"toy.matmul", "toy.attention"} <= ops
    assert ops.isdisjoint({"toy.gelu", "toy.add", "toy.layer_norm", "toy.dropout"})


@pytest.mark.parametrize("made", STEPS.values(), ids=STEPS)
def test_plans_are_legal_and_those_of_ratios_no_worse(made):
    step = compiled(made)
    before = program_order.baseline(step)
    for share in (0.8, 0.5):
        budget = step.persistent_bytes + int(share * (before.peak_bytes - step.persistent_bytes))
        problem = PlanningProblem(step, budget)
        cut = min_cut.solve(problem, Limits()).require()
        check_sequence(made.graph, cut, None, made.registry)
        assert cut.peak_with_workspace_bytes <= before.peak_with_workspace_bytes
        if made is STEPS["gpt"]:
            assert cut.peak_with_workspace_bytes < before.peak_with_workspace_bytes
        best = min_cut_ratios.solve(problem, Limits()).require()
        check_sequence(made.graph, best, None, made.registry)
        assert best.rank(budget) <= cut.rank(budget)
