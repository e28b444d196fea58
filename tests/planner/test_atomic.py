from __future__ import annotations

import pytest
import torch
from torch import nn

from frontends import steps
from neaptide.analysis.sizes import evaluate_storage_bytes
from neaptide.errors import VerifyError
from neaptide.ir.schedule import Offload
from neaptide.ops import registry
from neaptide.planner.atomic import atomic_step, check_atomic
from neaptide.planner.objective import PlannedSequence
from neaptide.schedule.problem import compile_problem
from support.catalogue import graph_of
from support.together import together


def atomic_of(factory):
    graph = graph_of(factory)
    problem = compile_problem(graph, registry())
    return graph, problem, atomic_step(problem, evaluate_storage_bytes(graph, None, None))


@pytest.fixture(scope="module")
def plain():
    return atomic_of(steps.mlp)


def used_after_its_update():
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    one, other = (torch.optim.SGD(model.parameters(), lr=0.1) for model in (first, second))

    def step(batch):
        first(batch).square().mean().backward()
        one.step()
        one.zero_grad()
        loss = second(first(batch).detach()).square().mean()
        loss.backward()
        other.step()
        other.zero_grad()
        return loss.detach()

    return step, torch.randn(3, 4)


def reporting_after_its_update():
    model = nn.Linear(4, 4)
    step = steps.simple(model, torch.optim.SGD(model.parameters(), lr=0.1))
    return lambda batch: (step(batch), model.weight.detach().norm()), torch.randn(3, 4)


@together(
    "factory, name, count, nbytes",
    [
        *((factory, "", 0, 0) for factory in (steps.mlp, steps.adamw, steps.lstm, steps.tied)),
        (reporting_after_its_update, "", 0, 0),
        (steps.batch_norm, "running", 4, (8 + 8 + 4 + 4) * 4),  # counters wait
        (used_after_its_update, "first", 2, (16 + 4) * 4),
    ],
)
def test_updates_run_last_and_what_is_written_earlier_is_saved(factory, name, count, nbytes):
    graph, problem, atomic = atomic_of(factory)
    by_storage = {graph.values[v].storage: graph.values[v].name for v in graph.inputs}
    assert len(atomic.saved) == count
    assert all(name in by_storage[storage] for storage in atomic.saved)
    assert atomic.saved_bytes == nbytes
    place = {node: i for i, node in enumerate(atomic.order)}
    assert all(place[b] < place[n] for n in atomic.order for b in problem.predecessors[n])
    writes = {n for n in range(problem.node_count) if problem.writes_persistent(n)}
    assert writes <= atomic.updates or count
    check_atomic(atomic, atomic.order)
    before, after = (PlannedSequence.evaluate(p, atomic.order, "").peak_bytes for p in (problem, atomic.step))
    assert after == before + nbytes


def test_nothing_that_updates_or_outputs_need_may_be_made_again(plain):
    _, problem, atomic = plain
    assert all(atomic.step.refusals[node] for node in atomic.updates)
    for value in (*problem.outputs, *(v for n in atomic.updates for v in problem.operands[n])):
        storage = problem.value_storage[value]
        if storage >= 0 and problem.creator[storage] >= 0:
            assert atomic.step.refusals[problem.creator[storage]]
    assert not all(atomic.step.refusals), "activations may still be made again"


def test_an_order_that_is_not_atomic_is_found_out_and_so_is_a_storage_on_the_host_after_the_first_update(
    plain,
):
    _, problem, atomic = plain
    first, begins = min(atomic.updates), atomic.order.index(atomic.first_write)
    computing = next(n for n in reversed(range(problem.node_count)) if n not in atomic.updates)
    begun = [n for n in atomic.order if n not in atomic.updates and n != computing]
    with pytest.raises(VerifyError, match=f"node {computing} runs after"):
        check_atomic(atomic, [*begun, *sorted(atomic.updates), computing])
    with pytest.raises(VerifyError, match=f"node {first} runs after"):
        check_atomic(atomic, [*atomic.order, first])
    check_atomic(atomic, atomic.order, [Offload(0, 0, 0, 0, begins, begins)])
    with pytest.raises(VerifyError, match="on the host after the first update"):
        check_atomic(atomic, atomic.order, [Offload(0, 0, 0, 0, begins, begins + 1)])
