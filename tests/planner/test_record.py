from __future__ import annotations

from neaptide.ir.fingerprint import fingerprint
from neaptide.outcome import Limits
from neaptide.planner.portfolio import plan_sequence
from neaptide.planner.record import planned_program
from neaptide.planner.updates import updates_moved_earlier
from neaptide.plans import Plan
from neaptide_corpus.training_steps import conv_step
from planner_problems import compiled


def test_what_was_found_becomes_an_entry_of_a_plan():
    made = conv_step(blocks=4, channels=32)
    step = compiled(made)
    budget = 95 * plan_sequence(step, 2**62, Limits()).require().peak_bytes // 100
    outcome = plan_sequence(step, budget, Limits(work=100))
    found = outcome.require()
    program = planned_program(
        step, outcome, fingerprint=fingerprint(made.graph), budget_bytes=budget, name=made.graph.name
    )
    assert (program.sequence, program.node_count) == (found.sequence, step.node_count)
    assert program.predictions.peak_bytes == found.peak_bytes
    assert program.predictions.baseline_peak_bytes > found.peak_bytes
    order = tuple(dict.fromkeys(found.sequence))
    assert program.moves.updates_moved_earlier == len(updates_moved_earlier(step, order)) > 0
    assert sum(len(unit.nodes) for unit in program.moves.recomputations) == (
        len(found.sequence) - step.node_count
    )
    assert program.termination.reason == outcome.termination.reason
    program.check_fingerprint(fingerprint(made.graph))
    plan = Plan((program,))
    assert Plan.from_json(plan.to_json()) == plan
