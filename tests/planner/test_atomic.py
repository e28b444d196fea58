from __future__ import annotations

import pytest
import torch
from torch import nn

from frontends import steps
from neaptide.analysis.sizes import evaluate_storage_bytes
from neaptide.errors import VerifyError
from neaptide.frontends.torch_step import capture_step
from neaptide.ir.schedule import HostStay
from neaptide.ops import registry
from neaptide.planner.atomic import atomic_step, check_atomic
from neaptide.planner.objective import PlannedSequence
from neaptide.schedule.problem import compile_problem


def atomic_of(step, batch):
    graph = capture_step(step, (batch,)).steady.graph
    problem = compile_problem(graph, registry())
    return graph, problem, atomic_step(problem, evaluate_storage_bytes(graph, None, None))


def names(graph, storages):
    by_storage = {graph.values[v].storage: graph.values[v].name for v in graph.inputs}
    return sorted(by_storage[storage] for storage in storages)


def is_legal(problem, order):
    place = {node: i for i, node in enumerate(order)}
    return all(place[b] < place[n] for n in order for b in problem.predecessors[n])


@pytest.mark.parametrize("factory", [steps.mlp, steps.adamw, steps.lstm, steps.tied])
def test_without_early_writes_nothing_is_saved_and_updates_run_last(factory):
    _, problem, atomic = atomic_of(*factory())
    assert (atomic.saved, atomic.saved_bytes) == ((), 0)
    assert is_legal(problem, atomic.order)
    writes = {n for n in range(problem.node_count) if problem.writes_resident(n)}
    assert writes <= atomic.updates
    check_atomic(atomic, atomic.order)


def test_running_statistics_are_saved_and_counters_wait():
    graph, problem, atomic = atomic_of(*steps.batch_norm())
    saved = names(graph, atomic.saved)
    assert len(saved) == 4
    assert all("running" in name for name in saved)
    assert atomic.saved_bytes == (8 + 8 + 4 + 4) * 4
    assert is_legal(problem, atomic.order)
    before, after = (PlannedSequence.evaluate(p, atomic.order, "").peak_bytes for p in (problem, atomic.step))
    assert after == before + atomic.saved_bytes


def test_a_model_that_is_used_after_its_update_is_saved_not_delayed():
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    one = torch.optim.SGD(first.parameters(), lr=0.1)
    other = torch.optim.SGD(second.parameters(), lr=0.1)

    def step(batch):
        first(batch).square().mean().backward()
        one.step()
        one.zero_grad()
        loss = second(first(batch).detach()).square().mean()
        loss.backward()
        other.step()
        other.zero_grad()
        return loss.detach()

    graph, problem, atomic = atomic_of(step, torch.randn(3, 4))
    saved = names(graph, atomic.saved)
    assert len(saved) == 2
    assert all("first" in name for name in saved)
    assert atomic.saved_bytes == (16 + 4) * 4
    assert is_legal(problem, atomic.order)


def test_what_a_step_reports_after_its_updates_does_not_hold_them_back():
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(batch):
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach(), model.weight.detach().norm()

    _, _, atomic = atomic_of(step, torch.randn(3, 4))
    assert atomic.saved == ()


def test_nothing_that_updates_or_outputs_need_may_be_made_again():
    _, problem, atomic = atomic_of(*steps.adamw())
    for node in atomic.updates:
        assert atomic.step.refusals[node]
    for value in (*problem.outputs, *(v for n in atomic.updates for v in problem.operands[n])):
        storage = problem.value_storage[value]
        if storage >= 0 and problem.creator[storage] >= 0:
            assert atomic.step.refusals[problem.creator[storage]]
    assert not all(atomic.step.refusals), "activations may still be made again"


def test_an_order_that_is_not_atomic_is_found_out():
    _, problem, atomic = atomic_of(*steps.mlp())
    check_atomic(atomic, atomic.order)
    first = min(atomic.updates)
    computing = next(n for n in reversed(range(problem.node_count)) if n not in atomic.updates)
    begun = [n for n in atomic.order if n not in atomic.updates and n != computing]
    with pytest.raises(VerifyError, match=f"node {computing} runs behind"):
        check_atomic(atomic, [*begun, *sorted(atomic.updates), computing])
    with pytest.raises(VerifyError, match=f"node {first} runs behind"):
        check_atomic(atomic, [*atomic.order, first])


def test_a_storage_on_the_host_behind_the_first_update_is_refused():
    _, _, atomic = atomic_of(*steps.mlp())
    begins = atomic.order.index(atomic.first_write)
    check_atomic(atomic, atomic.order, [HostStay(0, 0, 0, 0, begins, begins)])
    with pytest.raises(VerifyError, match="on the host behind the first update"):
        check_atomic(atomic, atomic.order, [HostStay(0, 0, 0, 0, begins, begins + 1)])
