"""Plans whose storages wait on the host: checked at the door, run with eager's bits and the predicted bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from neaptide.analysis.loops import InBodies
from neaptide.analysis.profile_bytes import memory_profile
from neaptide.ask import Ask
from neaptide.budget import Budget
from neaptide.errors import PlanError
from neaptide.ir.schedule import Schedule
from neaptide.ops import registry
from neaptide.outcome import Limits
from neaptide.plans import Plan
from neaptide.policy.plan_matching import matched
from neaptide.policy.prepared_step import PreparedStep
from neaptide.runtime.comparing import contestants, verification
from neaptide.schedule.problem import compile_problem
from support import catalogue
from support.steps import QUICK, dropout_factory
from support.together import together
from support.torch_programs import all_idle


@pytest.fixture(scope="module")
def captured():
    return catalogue.captured(dropout_factory)


@pytest.fixture(scope="module")
def plan(captured):
    """A plan with repetitions, and with everything that is idle on the host."""
    ask = Ask(Budget("80%"), limits=Limits(work=QUICK["work_limit"]), in_place=False)
    made = catalogue.planned(dropout_factory, ask).plan
    assert made.program("steady").moves.recomputations
    programs = tuple(map(stored, made.programs, captured.programs))
    most = max(program.predictions.host_bytes for program in programs)
    return replace(made, programs=programs, budget=replace(made.budget, host=most))


def stored(program, captured):
    graph, numbers = captured.graph, program.predictions
    offloads = all_idle(graph, program.sequence)
    profile = memory_profile(
        graph,
        Schedule.from_nodes(graph, program.sequence).with_offloads(offloads),
        workspace=dict(program.assumed.workspace),
        storage_bytes=dict(program.assumed.storages),
    )
    predictions = replace(
        numbers,
        peak_bytes=profile.peak_bytes,
        peak_with_workspace_bytes=profile.peak_with_workspace_bytes,
        host_bytes=profile.peak_host_bytes,
        arena_bytes=0,
        arena_lower_bound_bytes=0,
        exposed_seconds=0.5,
        seconds=numbers.seconds + 0.5,
    )
    problem = compile_problem(
        graph,
        registry(),
        workspace=dict(program.assumed.workspace),
        in_bodies=InBodies.here({}, dict(program.assumed.storages)),
    )
    assert any(problem.state_bytes[offload.storage] for offload in offloads)
    predictions = replace(
        predictions,
        lower_bound_bytes=problem.least_with_state_away(numbers.lower_bound_bytes),
        order_lower_bound_bytes=problem.least_with_state_away(numbers.order_lower_bound_bytes),
    )
    ended = program.termination
    if ended.best is not None:
        best = predictions.seconds if ended.best == numbers.seconds else profile.peak_with_workspace_bytes
        ended = replace(ended, best=best, bound=None)
    return replace(program, offloads=offloads, predictions=predictions, termination=ended)


def changed(plan, **changes):
    return replace(plan, programs=(replace(plan.programs[0], **changes), *plan.programs[1:]))


def predicting(plan, **changes):
    return changed(plan, predictions=replace(plan.programs[0].predictions, **changes))


def test_a_plan_with_offloads_is_saved_judged_and_run(plan, captured, tmp_path):
    plan.save(tmp_path / "plan.json")
    loaded = Plan.load(tmp_path / "plan.json")
    assert loaded == plan
    variant = matched(loaded, PreparedStep(captured))
    rebind = contestants.rebind(variant)
    expected = verification.verify_eager(dropout_factory, 0)
    assert verification.verify_planned(dropout_factory, 0, rebind, expected)[0].bitwise_equal
    runner = contestants.planned_contestant("stored", dropout_factory, 0, rebind)
    measured = contestants.measure([runner], 0)["stored"].memory.measured_peak_bytes
    numbers = plan.program("steady").predictions
    assert measured == numbers.peak_bytes < numbers.baseline_peak_bytes
    assert numbers.host_bytes > 0


@together(
    ("change", "message"),
    [
        (lambda plan: hosted(plan, None), "host_bytes is .*, and the budget allows 0 on the host"),
        (lambda plan: hosted(plan, plan.budget.host - 1), "host_bytes is .*, and the budget allows"),
        (lambda plan: hosted(plan, "a lot"), "budget is none: host='a lot' is no size"),
        (lambda plan: predicting(plan, host_bytes=1), "host_bytes is 1, and the sequence uses"),
        (
            lambda plan: changed(plan, offloads=plan.programs[0].offloads[:1]),
            "predictions.* and the sequence uses",
        ),
        (
            lambda plan: changed(plan, offloads=()),
            "offloads is empty, and the plan predicts bytes on the host",
        ),
        (lambda plan: replace(plan, atomic=True), "saved is .*, and an atomic step saves"),
        (
            lambda plan: predicting(plan, arena_bytes=4096),
            "offloads is not empty, and what is stored and loaded has no layout yet",
        ),
        (lambda plan: predicting(plan, exposed_seconds=0.0), "predictions.seconds|recomputations take"),
        (
            lambda plan: moved(plan, back_before=10**15),
            "offloads is not legal: storage .* cannot stay on the host",
        ),
        (
            lambda plan: moved(plan, store_after=-1),
            "offloads is not legal: storage .* cannot stay on the host",
        ),
        (
            lambda plan: moved(plan, storage=10**6),
            "offloads is not legal: step .* cannot store storage 1000000",
        ),
        (lambda plan: moved(plan, storage=0), "offloads is not legal: step .* it is away on the host"),
        (lambda plan: moved(plan, occurrence=7), "offloads is not legal: step .* it is not made yet"),
        (lambda plan: moved(plan, load_before=2000, back_before=2000), "offloads is not legal"),
    ],
)
def test_an_edited_offload_is_refused_in_one_sentence(plan, captured, change, message):
    with pytest.raises(PlanError, match=message) as refused:
        matched(Plan.from_json(change(plan).to_json()), PreparedStep(captured))
    assert "\n" not in refused.value.what


def hosted(plan, host):
    return replace(plan, budget=replace(plan.budget, host=host))


def moved(plan, **changes):
    first, *others = plan.programs[0].offloads
    return changed(plan, offloads=(replace(first, **changes), *others))
