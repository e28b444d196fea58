from __future__ import annotations

from neaptide.outcome import Limits
from neaptide.planner.objective import PlanningProblem
from neaptide.planner.recompute.units import forward_units
from neaptide.planner.strategies import program_order
from neaptide.schedule.recompute_form import InstanceNode, from_nodes
from neaptide_corpus.training_steps import conv_step, pooled_step, transformer_step
from neaptide_peers.strategies import drop_cheap
from planner_problems import compiled, judge


def plan(made):
    step = compiled(made)
    found = drop_cheap.solve(PlanningProblem(step, step.resident_bytes), Limits()).require()
    judge(made.graph, found, None, made.registry)
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
    assert found.peak_bytes - step.resident_bytes < 0.75 * (before.peak_bytes - step.resident_bytes)
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
