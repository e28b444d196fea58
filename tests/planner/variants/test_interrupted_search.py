"""A search over variants that is ended on the way gives the best of what it met until then."""

from __future__ import annotations

import threading

import pytest

from neaptide.analysis.legality.schedule import check_schedule
from neaptide.analysis.profile_bytes import memory_profile
from neaptide.budget import Budget
from neaptide.ops import registry
from neaptide.outcome import Limits
from neaptide.planner.check_plan import check_program, plan_workspace, problem_of
from neaptide.planner.strategies.program_order import baseline
from neaptide.planner.variants.met import MetPlans
from neaptide.planner.variants.price import Goal
from neaptide.plans import Plan
from neaptide.transform.rewrite import replay
from neaptide.transform.rules import RULES
from planner.variants import variant_search
from planner.variants.variant_search import PRICING
from support.catalogue import graph_of
from support.steps import rows_step

LONGEST_S = 3600.0


class EndsTheSearch(MetPlans):
    """Asks the search to end when it has met some plans."""

    def __init__(self, after):
        super().__init__()
        self.after, self.interrupt, self.noted = after, threading.Event(), []

    def note(self, plan, written):
        super().note(plan, written)
        self.noted.append(plan)
        if len(self.noted) == self.after:
            self.interrupt.set()


def searched(graph, met):
    budget = Budget(None, latency=LONGEST_S)
    return variant_search.searched(
        graph, budget, Limits(None, 800), asked={"interrupt": met.interrupt}, met=met
    )


@pytest.fixture(scope="module")
def graph():
    return graph_of(rows_step)


@pytest.mark.parametrize("after", [3, 4])
def test_the_best_that_was_met_is_the_answer(graph, after):
    met = EndsTheSearch(after)
    answer = searched(graph, met)
    assert len(met.noted) == after  # nothing was planned after
    before = baseline(PRICING.problem(graph))
    goal = Goal(before.peak_with_workspace_bytes, LONGEST_S)
    best = min(met.noted, key=lambda plan: goal.rank_of(plan.found.program))
    assert best not in (met.noted[0], met.noted[-1])
    assert goal.rank_of(answer.found.program) == goal.rank_of(best.found.program)
    assert answer.variant.rewrites == best.variant.rewrites != ()

    program = Plan.from_json(Plan((answer.found.program,)).to_json()).programs[0]
    changed = replay(graph, registry(), answer.variant.rewrites, RULES).graph
    step = problem_of(program, changed, registry())
    schedule = check_program(program, changed, step, registry())
    assert schedule == answer.found.schedule
    check_schedule(changed, schedule, registry())
    played = memory_profile(
        changed, schedule, workspace=plan_workspace(program.assumed, changed, schedule.bodies)
    )
    assert played.peak_with_workspace_bytes == program.predictions.peak_with_workspace_bytes
    assert played.peak_with_workspace_bytes < before.peak_with_workspace_bytes
