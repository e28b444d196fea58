"""What `planner.strategies.Strategy` promises, of every strategy by name, those of others included, and of the default.

`test_random_graphs.py` holds the names to legal plans of any graph, whose bytes and effects it plays.
"""

from __future__ import annotations

import copy
import threading
from collections import Counter
from functools import partial

import pytest

from neaptide.errors import UsageError
from neaptide.ir.builder import GraphBuilder
from neaptide.named_peers import STRATEGIES
from neaptide.outcome import Limits, TerminationReason
from neaptide.planner.objective import PlannedSequence, PlanningProblem
from neaptide.planner.portfolio import plan_sequence
from neaptide.planner.strategies import NAMES, canonical_name, early_updates, program_order, strategy
from neaptide.schedule.problem import compile_problem
from neaptide_corpus.training_steps import conv_step, toy_registry, transformer_step
from planner.chain_play import chain_step
from planner.planner_problems import check_sequence, compiled, random_chain, units_of
from support.together import together

ALL = (*NAMES, "default")
EXACT = {"checkmate", "moccasin"}
"""They solve small steps; `peers/strategies/test_stages.py` has those of training that they solve."""
QUICK = [name for name in ALL if name not in STRATEGIES]
KEEPS_NO_START = {"program_order", "default"}
"""The one knows no other order than its own; the other tries several."""
STEPS = {
    "dropout": transformer_step(layers=1, dropout=True, clip=True),
    "conv": conv_step(blocks=2, batch=16),
}


def solver(name):
    if name != "default":
        return strategy(name)
    return lambda problem, limits, interrupt=None: plan_sequence(
        problem.step, problem.budget_bytes, limits, interrupt=interrupt
    )


def half(step, start=None):
    """A budget half way between what is always there and the peak of program order."""
    peak = program_order.baseline(step).peak_with_workspace_bytes
    return PlanningProblem(step, (step.persistent_bytes + peak) // 2, start)


def check(name, outcome, problem, graph, registry):
    """Legal and counted as the reference counts; no worse than the start; a bound that is none above what was found."""
    found, ended = outcome.require(), outcome.termination
    before = PlannedSequence.evaluate(problem.step, problem.first_sequence(), name)
    check_sequence(graph, found, None, registry)
    if name != "program_order":
        assert found.rank(problem.budget_bytes) <= before.rank(problem.budget_bytes)
    if name != "default":
        assert found.strategy == name
    if None not in (ended.bound, ended.best):
        assert ended.bound <= ended.best * (1 + 1e-9)
    units = Counter(node for unit in units_of(problem.step, found) for node in unit.nodes)
    again = Counter(found.sequence) - Counter(range(problem.step.node_count))
    assert all(again[node] == units[node] for node in again | units if problem.step.created[node])


@together("name", [name for name in ALL if name not in EXACT], quick=QUICK)
@together("made", STEPS.values(), ids=STEPS)
def test_training_steps_are_planned_legally_and_no_worse_from_either_order(name, made):
    step = compiled(made)
    early = early_updates.solve(PlanningProblem(step, 0), Limits()).require()
    for start in (None, early.sequence)[name in KEEPS_NO_START :]:
        problem = half(step, start)
        before = copy.deepcopy(problem)
        check(name, solver(name)(problem, Limits(work=500)), problem, made.graph, made.registry)
        assert problem == before


@together("name", ALL, quick=QUICK)
def test_a_limit_of_work_is_kept_and_the_answer_is_the_same_again(name):
    problem = half(random_chain(3, 5))
    for work in (0, 30, 300):
        limits = Limits(work=work, seed=5)
        one, two = (solver(name)(problem, limits) for _ in range(2))
        assert (one.value, one.work, one.termination) == (two.value, two.work, two.termination)
        assert one.work <= work
        assert one.termination.limit in {None, "work"}


@together("name", ALL, quick=QUICK)
def test_a_search_that_is_interrupted_or_has_no_time_says_so_and_has_its_start(name):
    problem, stop = PlanningProblem(chain_step(8), 300), threading.Event()
    stop.set()
    stopped = solver(name)(problem, Limits(), stop)
    assert stopped.require().sequence == tuple(range(16))
    assert stopped.termination.is_proved or stopped.termination.reason is TerminationReason.INTERRUPTED
    late = solver(name)(problem, Limits(time_s=0.0))
    assert late.require().sequence == tuple(range(16))
    assert late.termination.is_proved or late.termination.limit == "time"


@together("name", ALL, quick=QUICK)
def test_a_budget_that_the_start_meets_ends_the_search_at_once(name):
    step = chain_step(6)
    peak = program_order.baseline(step).peak_with_workspace_bytes
    outcome = solver(name)(PlanningProblem(step, peak), Limits())
    assert outcome.termination.reason is TerminationReason.OPTIMAL
    assert outcome.require().sequence == tuple(range(12))


@together("name", [name for name in ALL if name not in KEEPS_NO_START], quick=QUICK)
def test_a_start_with_repetitions_is_a_start(name):
    start = (0, 1, 2, 3, 4, 5, 0, *range(6, 12))
    problem = PlanningProblem(chain_step(6), 0, start)
    found = solver(name)(problem, Limits()).require()
    before = PlannedSequence.evaluate(problem.step, start, name)
    assert found.rank(0) <= before.rank(0)
    assert [node for place, node in enumerate(start) if node not in start[:place]] == [
        node for place, node in enumerate(found.sequence) if node not in found.sequence[:place]
    ]


@together("name", ALL, quick=QUICK)
def test_a_program_without_operations_has_a_plan(name):
    build = GraphBuilder("empty", toy_registry())
    build.output(build.input("x", (21,)))
    step = compile_problem(build.finish(), toy_registry())
    assert solver(name)(PlanningProblem(step, 10), Limits()).require().sequence == ()


def test_names_are_one_word_each_in_two_spellings_and_others_are_refused():
    assert len(set(NAMES)) == len(NAMES)
    for name in NAMES:
        found, other = strategy(name), strategy(name.replace("_", "-"))
        assert canonical_name(name) == name
        assert found is other or (isinstance(found, partial) and found.args == other.args)
    for gone in ("magic", "closure"):
        with pytest.raises(UsageError, match=f"no strategy is called {gone!r}"):
            strategy(gone)
