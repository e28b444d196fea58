"""What runs is a planned graph: what verify runs observe, and the user's checkpoints, follow to where they are."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from frontends import steps
from neaptide.errors import RewriteError
from neaptide.ir.edits.edit import GraphEdit, NodeDraft
from neaptide.ir.nodes import Ref
from neaptide.runtime.comparing.contestants import never_again
from neaptide.runtime.steps.capturing import capture
from neaptide.runtime.steps.planned_graph import PlannedGraph, PlannedVariant
from neaptide.runtime.steps.planned_step import PlannedStep


class TwoBiases(nn.Module):
    """Both biases have the same gradient, which autograd computes for each of them."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Parameter(torch.zeros(8)), nn.Parameter(torch.ones(8))

    def forward(self, x):
        return (x * x + self.first) + self.second


def biased(clip=False):
    torch.manual_seed(0)
    model = TwoBiases()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        loss = model(x).tanh().square().mean()
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step, torch.randn(4, 8)


def made_anew(edit, graph, number):
    """Let another node make what a node makes."""
    node = graph.nodes[number]
    (old,) = (graph.values[value] for value in node.outputs)
    again = edit.fresh(old.name, old.dtype, old.shape, strides=old.strides)
    edit.insert_before(number, replace(edit.draft(number), outputs=(again,)))
    edit.replace_uses(old.id, again)
    edit.remove(number)


def of_other_ids(graph, anew=0):
    """The same with further nodes that nobody needs, and one whose result is made by another node."""
    edit = GraphEdit(graph)
    value = graph.values[graph.inputs[0]]
    for node in graph.nodes[::4]:
        copy = edit.fresh("unneeded", value.dtype, value.shape)
        edit.insert_before(node.id, NodeDraft("aten.clone.default", (value.id,), (copy,), (Ref(0),)))
    made_anew(edit, graph, anew)
    return edit.finish()


@pytest.mark.parametrize("clip", [False, True])
def test_observed_gradients_are_the_same_in_a_graph_of_other_ids(clip):
    seen = []
    for changed in (False, True):
        step, batch = biased(clip)
        captured = capture(step, (batch,))
        graphs = [PlannedGraph.captured(program) for program in captured.programs]
        if changed:
            graphs = [planned.rewritten(of_other_ids(planned.graph), ()) for planned in graphs]
            assert graphs[0].observations != captured.steady.observations
        runner = PlannedStep(step, never_again, PlannedVariant(captured, tuple(graphs)), on_mismatch="error")
        result, gradients = runner.run_watched(batch)
        seen.append((result, gradients))
    assert len(seen[0][1]) == 2
    assert seen[0][1].keys() == seen[1][1].keys()
    assert all(seen[1][1][name].equal(gradient) for name, gradient in seen[0][1].items())
    assert seen[0][0].equal(seen[1][0])


def test_what_verify_runs_observe_is_not_taken_away():
    step, batch = steps.mlp()
    planned = PlannedGraph.captured(capture(step, (batch,)).steady)
    watched = planned.observations[0]
    edit = GraphEdit(planned.graph)
    made_anew(edit, planned.graph, planned.graph.producer(watched.value))
    with pytest.raises(RewriteError) as caught:
        planned.rewritten(edit.finish(), ())
    assert caught.value.what == f"verify runs observe {watched.name}, which it takes away"


def test_checkpoints_follow_their_nodes():
    torch.manual_seed(0)
    layer = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)

    def step(x):
        loss = checkpoint(layer, x, use_reentrant=False).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    planned = PlannedGraph.captured(capture(step, (torch.randn(4, 8),)).steady)
    tail = planned.checkpoints[0][-1] + 1
    changed = planned.rewritten(of_other_ids(planned.graph, anew=tail), ())
    (before,), (after,) = planned.checkpoints, changed.checkpoints
    assert [planned.graph.nodes[n].op for n in before] == [changed.graph.nodes[n].op for n in after]
    assert before != after
