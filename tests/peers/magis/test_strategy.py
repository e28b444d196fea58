"""MAGIS's search on captured programs: counts that are the checker's, plans that run as eager does, and no rewrites on the way."""

from __future__ import annotations

import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import neaptide
from neaptide.analysis.legality.schedule import check_schedule
from neaptide.analysis.profile_bytes import memory_profile
from neaptide.ask import CLOSE, Ask
from neaptide.budget import Budget
from neaptide.cost.model import EstimatedCost
from neaptide.cost.presets import get_device
from neaptide.errors import RewriteError, UsageError
from neaptide.frontends.torch_step import capture_step
from neaptide.ir.schedule import Schedule
from neaptide.named_peers import MAGIS
from neaptide.ops import registry
from neaptide.outcome import Limits
from neaptide.planner.graphs.plan_graph import GraphAsk
from neaptide.planner.objective import PlannedSequence
from neaptide.planner.pricing import Pricing
from neaptide.planner.strategies.program_order import baseline
from neaptide.policy.prepared_step import PreparedStep
from neaptide.runtime.comparing import contestants
from neaptide_peers.combinations.asked import Combining
from neaptide_peers.magis import carry_out, moves, strategy
from neaptide_peers.magis.state import State
from support.catalogue import graph_of
from support.step_checks import assert_runs_as_predicted
from support.steps import rows_step

DEVICE = "rtx3090"
LONGEST_S = 3600.0


def heads_step():
    """Two projections whose results are seen through transposed views of heads, and random masks."""
    torch.manual_seed(0)
    first, second = nn.Linear(8, 48), nn.Linear(48, 48)
    head = nn.Linear(48, 4)
    optimizer = torch.optim.SGD([*first.parameters(), *second.parameters(), *head.parameters()], lr=0.1)

    def step(batch):
        x, y = batch
        optimizer.zero_grad()
        x = F.gelu(first(x))
        heads = x.view(16, 6, 4, 12).transpose(1, 2)
        mixed = (heads @ heads.transpose(2, 3)) @ heads
        x = F.dropout(second(mixed.transpose(1, 2).flatten(2)), 0.25)
        loss = F.cross_entropy(head(F.gelu(x)).flatten(0, 1), y.flatten())
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, (torch.randn(16, 6, 8), torch.randint(0, 4, (16, 6)))


STEPS = {"rows": rows_step, "heads": heads_step}


@pytest.fixture(scope="module")
def graphs():
    return {name: graph_of(factory) for name, factory in STEPS.items()}


def asked_of(graph, budget=None, limits=None, exact=None, interrupt=None):
    """What the strategy is asked, with estimated costs."""
    table = registry()
    pricing = Pricing(EstimatedCost(get_device(DEVICE), table), table)
    budget = budget or Budget(None, latency=LONGEST_S)
    allowed = budget.resolve(baseline(pricing.problem(graph)).peak_with_workspace_bytes)
    return Combining(
        graph,
        lambda _: GraphAsk(budget, budget_bytes=allowed),
        limits or Limits(work=60),
        pricing,
        exact or (lambda _: pricing),
        lambda _: None,
        interrupt=interrupt,
    )


def played(made, checked):
    """Bytes of a carried out state by the evaluator that shares no code with the searches; it must be legal."""
    graph, schedule = checked.variant.graph, checked.schedule
    check_schedule(graph, schedule, registry())
    workspace = made.quick.prices(graph, schedule.bodies).workspace
    return memory_profile(graph, schedule, workspace=workspace).peak_with_workspace_bytes


def in_program_order(made, carrying, state):
    """A state as it is carried out, before anything is ordered anew, counted."""
    carried = carry_out.carry_out_moves(carrying.begun.graph, made.quick.registry, carrying.tree, state)
    problem = made.quick.problem(carried.graph, carried.schedule.bodies)
    sequence = [step.target for step in carried.schedule.node_steps()]
    return PlannedSequence.evaluate(problem, sequence, MAGIS)


def walk(carrying, choices):
    """States on a way from the program as it is."""
    state = State()
    for choice in choices:
        found = list(moves.next_states(carrying.simulator, state, carrying.simulator.run(state)))
        state = found[choice % len(found)]
        yield state


WAYS = [(0, 0, 1), (1, 2, 1, 0), (3, 1, 4, 1, 5), (2, 7, 1, 8, 2, 8), (6, 6, 6), (4, 9, 5, 3, 5), (11, 3, 7)]


@pytest.mark.parametrize("name", STEPS)
def test_states_take_what_the_check_counts(graphs, name):
    """In program order to the byte and to the second, if there are no loops; ordered anew never more."""
    made = asked_of(graphs[name])
    carrying = strategy.Carrying.of(made)
    repeated, looped, lower = 0, 0, 0
    for way in WAYS:
        for state in walk(carrying, way):
            try:
                checked = carrying.carried_out(state)
            except RewriteError:
                assert state.parts
                continue
            assert checked.counted.peak_with_workspace_bytes == played(made, checked)
            looped += bool(state.parts)
            before = in_program_order(made, carrying, state)
            assert checked.counted.peak_with_workspace_bytes <= before.peak_with_workspace_bytes
            assert checked.counted.seconds == before.seconds
            lower += checked.counted.peak_with_workspace_bytes < before.peak_with_workspace_bytes
            if not state.parts:
                simulated = carrying.simulator.run(state)
                assert simulated.peak_bytes == before.peak_with_workspace_bytes
                assert simulated.seconds == pytest.approx(before.seconds)
                repeated += bool(state.again)
    assert repeated
    assert looped
    assert lower


def test_views_run_again_with_what_they_show(graphs):
    """A user after the recomputation that needs a view of it must not keep the old storage alive."""
    graph = graphs["heads"]
    made = asked_of(graph)
    carrying = strategy.Carrying.of(made)
    flat, begun = carrying.simulator.flat, carrying.begun.graph
    seen = 0
    for node, views in enumerate(flat.views):
        for tensor in flat.made[node]:
            users = [user for user in flat.users[tensor] if user < flat.again_until[node]]
            behind = [view for view in views if users and view.node < users[-1] and users[-1] in view.users]
            if not behind:
                continue
            seen += 1
            state = State().toggled_again((node, users[-1]))
            checked = carrying.carried_out(state)
            before = in_program_order(made, carrying, state)
            assert carrying.simulator.run(state).peak_bytes == before.peak_with_workspace_bytes
            sequence = checked.counted.sequence
            assert sequence.count(node) == 2
            assert all(sequence.count(view.node) == 2 for view in behind)
            # All that is used after is the new one: the first is gone by then.
            profile = memory_profile(begun, Schedule.from_nodes(begun, sequence))
            assert profile.peak_bytes <= played(made, checked) <= before.peak_with_workspace_bytes
    assert seen


def test_random_numbers_are_drawn_once(graphs):
    graph = graphs["heads"]
    carrying = strategy.Carrying.of(asked_of(graph))
    draws = [node.id for node in carrying.begun.graph.nodes if node.effects.rng is not None]
    assert draws
    assert all(carrying.simulator.flat.again_until[node] == 0 for node in draws)
    assert all(region.members.isdisjoint(draws) for region in carrying.tree.regions)
    # What is drawn is no reason against parts of all the rest.
    largest = max(len(region.members) for region in carrying.tree.regions)
    assert largest > 0.5 * sum(node.source.phase != "optimizer" for node in carrying.begun.graph.nodes)


def numbers(answer):
    made = answer.found.program.predictions
    return (
        made.peak_with_workspace_bytes,
        made.seconds,
        answer.found.program.sequence,
        answer.variant.rewrites,
    )


def test_the_same_under_a_work_limit_and_a_seed(graphs):
    one, other = (strategy.solve(asked_of(graphs["rows"], limits=Limits(work=50, seed=2))) for _ in range(2))
    assert numbers(one) == numbers(other)
    assert numbers(one)[0] < one.before.peak_with_workspace_bytes


def test_the_least_time_within_bytes(graphs):
    answer = strategy.solve(asked_of(graphs["rows"], Budget("70%"), Limits(work=120)))
    peak, seconds, *_ = numbers(answer)
    assert peak <= 0.7 * answer.before.peak_with_workspace_bytes
    assert seconds >= 0
    roomy = strategy.solve(asked_of(graphs["rows"], Budget("100%"), Limits(work=40)))
    assert roomy.variant.rewrites == ()
    assert roomy.found.program.sequence == tuple(range(len(graphs["rows"].nodes)))


def test_an_interrupt_keeps_the_best_that_was_judged(graphs):
    interrupt, priced = threading.Event(), []
    table = registry()
    pricing = Pricing(EstimatedCost(get_device(DEVICE), table), table)

    def exact(graph):
        if len({*map(id, priced)}) > 4:
            interrupt.set()
        priced.append(graph)
        return pricing

    made = asked_of(graphs["rows"], limits=Limits(work=10_000), exact=exact, interrupt=interrupt)
    answer = strategy.solve(made)
    assert len({*map(id, priced)}) < 9
    assert answer.tried
    best = min(answer.tried, key=lambda one: one.peak_bytes)
    assert numbers(answer)[:2] == (best.peak_bytes, best.seconds)
    interrupt.set()
    nothing = strategy.solve(asked_of(graphs["rows"], interrupt=interrupt))
    assert nothing.variant.rewrites == ()


@pytest.mark.parametrize("name", STEPS)
def test_plans_run_as_eager_does_in_the_bytes_predicted(name):
    factory = STEPS[name]
    step, batch = contestants.build(factory, 0)
    budget, limits = Budget(None, latency="+400%"), Limits(work=80)
    options = Ask(budget, MAGIS, limits, numerics=CLOSE, workers=1)
    found = PreparedStep(capture_step(step, (batch,)), device=DEVICE).plan(options)
    program = found.plan.programs[0]
    assert program.predictions.peak_bytes < program.predictions.baseline_peak_bytes
    assert_runs_as_predicted(factory, found)


def test_it_takes_sums_in_another_order():
    step, batch = rows_step()
    with pytest.raises(UsageError, match="takes sums in another order"):
        neaptide.plan(step, batch, budget="60%", strategy=MAGIS)
