"""Updates and parts: a loop over a whole step ends behind all gradients, a loop at the loss leaves those in front of it free."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neaptide.analysis.legality import check_schedule
from neaptide.analysis.profile_bytes import memory_profile
from neaptide.budget import Budget
from neaptide.frontends.torch_step import capture_step
from neaptide.ir.values import Kind
from neaptide.ops import registry
from neaptide.outcome import Limits
from neaptide.planner.judge_plan import plan_workspace
from neaptide.planner.plan_graph import GraphAsk, plan_graph
from variant_search import PRICING, choices_of_all

PARTS, LAYERS, ROWS, CLASSES = 4, 3, 16, 200


def training():
    """Layers whose weights are more than what they make, and wide logits."""
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Sequential(nn.Linear(64, 160), nn.ReLU(), nn.Linear(160, 64)) for _ in range(LAYERS)),
        nn.Linear(64, CLASSES),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x, y):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()  # else the caller keeps all gradients, and no update ends one
        return loss.detach()

    return step, (torch.randn(ROWS, 64), torch.randint(0, CLASSES, (ROWS,)))


@pytest.fixture(scope="module")
def choices():
    step, batch = training()
    made = choices_of_all()
    graph = capture_step(step, batch).steady.graph
    return made, made.after(made.begun(graph))


def in_parts(choices, kind):
    """The variant with a region of a kind in parts, as large as there is for a whole step, and its loop."""
    known, found = choices
    wanted = [choice for choice in found if choice.regions[0].kind == kind]
    by_size = sorted(wanted, key=lambda choice: len(choice.regions[0].members))
    graph = known.taken(by_size[-1 if kind == "step" else 0], PARTS).graph
    (loop,) = [node.id for node in graph.nodes if node.regions]
    return graph, loop


def with_early_updates(graph):
    """The plan of a variant with updates as early as they lower the peak; the predicted peak is that of the play."""
    asked = GraphAsk(Budget("1%"), "early_updates", Limits(None, 500))
    made = plan_graph(graph, PRICING, asked)
    check_schedule(graph, made.schedule, registry())
    workspace = plan_workspace(made.program.assumed, graph, made.schedule.bodies)
    played = memory_profile(graph, made.schedule, workspace=workspace)
    assert made.program.predictions.peak_with_workspace_bytes == played.peak_with_workspace_bytes
    return made.program


def positions_of_updates(graph, program):
    owned = {storage.id for storage in graph.storages if storage.kind is Kind.PARAMETER}
    updates = {n.id for n in graph.nodes if any(access.storage in owned for access in n.effects.writes)}
    assert len(updates) == 2 * (2 * LAYERS + 1)
    return sorted(place for place, node in enumerate(program.sequence) if node in updates)


def test_updates_wait_for_a_loop_over_the_whole_step(choices):
    graph, loop = in_parts(choices, "step")
    program = with_early_updates(graph)
    assert positions_of_updates(graph, program)[0] > program.sequence.index(loop)
    made = program.predictions
    assert made.peak_with_workspace_bytes == made.baseline_peak_with_workspace_bytes


def test_updates_beside_a_loop_at_the_loss_run_inside_the_backward(choices):
    graph, _ = in_parts(choices, "suffix")
    program = with_early_updates(graph)
    last = max(
        place
        for place, node in enumerate(program.sequence)
        if graph.nodes[node].source.phase == "backward" and graph.created_storages(graph.nodes[node])
    )
    early = [place for place in positions_of_updates(graph, program) if place < last]
    assert program.moves.updates_moved_earlier >= len(early) > LAYERS
    made = program.predictions
    assert made.peak_with_workspace_bytes < made.baseline_peak_with_workspace_bytes
    whole = with_early_updates(in_parts(choices, "step")[0]).predictions
    assert made.peak_with_workspace_bytes < whole.peak_with_workspace_bytes
