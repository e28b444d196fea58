"""Variants planned in processes of their own: the same plans, whatever becomes of a process, and none that is left."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import replace

import pytest

from neaptide.budget import Budget
from neaptide.cost.model import EstimatedCost
from neaptide.cost.presets import get_device
from neaptide.ops import registry
from neaptide.outcome import Limits
from neaptide.planner.failed_stages import FailedStageWarning
from neaptide.planner.graphs.plan_graph import GraphAsk
from neaptide.planner.pricing import Pricing
from neaptide.planner.variants.planning import VariantPrices
from neaptide.planner.variants.processes.messages import packed, unpacked
from neaptide.planner.variants.processes.pool import Lost, PricedTask, WorkerPool, started_pool
from neaptide.planner.variants.search import plan_variants
from planner.variants.variant_search import PRICING, choices_of_all
from support.catalogue import graph_of
from support.steps import rows_step


@pytest.fixture(scope="module")
def tasks():
    """The step as it is, and in parts."""
    choices = choices_of_all()
    begun = choices.begun(graph_of(rows_step))
    split = choices.taken(choices.after(begun)[0], 2).graph
    asked = GraphAsk(Budget("70%"), limits=Limits(work=100))
    return [PricedTask.of(graph, asked, PRICING) for graph in (begun.graph, split)]


@pytest.fixture(scope="module")
def pool():
    made = WorkerPool(2)
    yield made
    made.close()


@pytest.mark.slow
def test_plans_are_those_that_are_made_here(tasks, pool):
    here = [task.planned(registry()) for task in tasks]
    for _ in range(2):  # a worker plans one task after another
        assert pool.plans(tasks, lambda _: True) == here
    assert pool.plans(tasks, lambda number: number == 1) == [None, here[1]]


def test_a_worker_that_dies_is_told_of_and_its_task_is_lost(tasks):
    pool = WorkerPool(1)
    pool._workers[0].process.kill()
    with pytest.warns(FailedStageWarning, match="died"):
        found = pool.plans(tasks, lambda _: True)
    assert [type(plan) for plan in found] == [Lost, Lost]
    pool.close()


def test_a_task_that_fails_there_is_lost_without_a_word_of_warning(tasks, pool):
    bad = replace(tasks[0], asked=replace(tasks[0].asked, strategy="no such strategy"))
    first, second = pool.plans([bad, tasks[1]], lambda _: True)
    assert isinstance(first, Lost)
    assert second == tasks[1].planned(registry())


def test_who_is_interrupted_leaves_no_process_behind(tasks):
    interrupt = threading.Event()
    pool = WorkerPool(2, interrupt)
    processes = [worker.process for worker in pool._workers]
    try:
        endless = [replace(task, asked=replace(task.asked, limits=Limits())) for task in tasks]

        def may_begin(_):
            interrupt.set()
            return True

        found = pool.plans(endless, may_begin)
        assert not any(isinstance(plan, Lost) for plan in found)
    finally:
        pool.close()
    assert all(process.poll() is not None for process in processes)


def test_where_planning_is_short_or_operations_are_others_there_are_no_workers():
    assert started_pool(1, 3, PRICING, 100.0) is None
    assert started_pool(None, 3, PRICING, 0.1) is None
    others = Pricing(EstimatedCost(get_device("rtx3090"), registry()), type(registry())([]))
    assert started_pool(2, 3, others, 100.0) is None


def test_the_search_finds_the_same_with_any_number_of_workers():
    graph = graph_of(rows_step)
    budget, allowed = Budget(None, latency=3600.0), PRICING.problem(graph).persistent_bytes
    found = []
    for workers in (1, 2):
        asked = GraphAsk(budget, limits=Limits(work=300), workers=workers, budget_bytes=allowed)
        made = plan_variants(
            graph,
            lambda _, asked=asked: asked,
            VariantPrices(PRICING, lambda _: PRICING),
            choices_of_all(),
        )
        found.append((made.label, made.variant.rewrites, made.found, made.tried))
    assert len(found[0][-1]) >= 4
    assert found[1] == found[0]


SCRIPT = """
import sys

class NoFramework:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "transformers", "onnx"):
            raise ImportError(f"{name} must not be imported here")

sys.meta_path.insert(0, NoFramework())
print("here")

from neaptide.planner.variants.processes.messages import unpacked
from neaptide.planner.variants.processes.pool import WorkerPool

task = unpacked(open(sys.argv[1], "rb").read())
pool = WorkerPool(1)
(plan,) = pool.plans([task], lambda _: True)
pool.close()
print(plan.program.predictions.peak_bytes)
"""


def test_a_script_without_a_guard_is_run_once_and_no_framework_is_needed(tasks, tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "task").write_bytes(packed(tasks[1]))
    command = [sys.executable, str(tmp_path / "script.py"), str(tmp_path / "task")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    assert done.stdout.split() == ["here", str(tasks[1].planned(registry()).program.predictions.peak_bytes)]


def test_graphs_arrive_as_they_were(tasks):
    for task in tasks:
        there = unpacked(packed(task))
        assert (there.graph, there.asked) == (task.graph, task.asked)
        assert there.graph.created_storages(there.graph.nodes[0]) == task.graph.created_storages(
            task.graph.nodes[0]
        )
