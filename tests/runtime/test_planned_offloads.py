"""Steps whose plans store and load run as eager does."""

from __future__ import annotations

import pytest

from neaptide import zoo
from neaptide.ask import Ask
from neaptide.budget import Budget
from neaptide.outcome import Limits
from neaptide.policy.prepared_step import prepare
from neaptide.runtime.comparing import contestants
from neaptide.runtime.comparing.verification import verify_eager, verify_planned
from support import catalogue
from support.step_checks import assert_runs_as_predicted


@pytest.mark.parametrize(
    ("spec", "peak", "atomic"),
    [
        ("mlp@tiny", "80%", False),
        pytest.param("mlp@tiny", "min", False, marks=pytest.mark.slow),
        pytest.param("gpt2@tiny", "80%", False, marks=pytest.mark.slow),
        pytest.param("gpt2@tiny", "min", False, marks=pytest.mark.slow),
        pytest.param("gpt2@tiny", "min", True, marks=pytest.mark.slow),
    ],
)
def test_a_planned_step_with_offloads_gives_the_bits_and_the_peak_that_were_predicted(spec, peak, atomic):
    factory = zoo.factory(spec)
    prepared = catalogue.prepared(factory)
    options = Ask(Budget(peak, host="64MiB"), limits=Limits(work=2000, seed=0), atomic=atomic)
    found = prepared.plan(options)
    program = found.plan.programs[0]
    assert program.offloads
    assert assert_runs_as_predicted(factory, found).bitwise_equal


@pytest.mark.parametrize(
    ("spec", "is_low"),
    [
        ("mlp@tiny", True),
        pytest.param("gpt2@tiny", False, marks=pytest.mark.slow),
        pytest.param("bert@tiny", False, marks=pytest.mark.slow),
        pytest.param("llama@tiny", False, marks=pytest.mark.slow),
    ],
)
def test_state_waits_on_the_host_within_a_step(spec, is_low):
    """Below what any plan needs that keeps the state on the device; between steps all of it is there."""
    factory = zoo.factory(spec)
    prepared = catalogue.prepared(factory)
    problem = prepared.problem()
    least = problem.lower_bound_bytes
    options = Ask(Budget(least - 1, host="64MiB"), limits=Limits(work=500, seed=0))
    found = prepared.plan(options)
    program = found.plan.programs[0]
    assert any(problem.state_bytes[offload.storage] for offload in program.offloads)
    assert {(row.name, row.nbytes) for row in program.copies.rows} == {
        (problem.storage_names[offload.storage], problem.moved_bytes(offload.storage))
        for offload in program.offloads
    }
    predicted = program.predictions
    assert problem.persistent_bytes <= predicted.lower_bound_bytes <= predicted.peak_with_workspace_bytes
    assert predicted.peak_with_workspace_bytes < least or not is_low
    verify = contestants.rebind(found.variant)
    outcome, _ = verify_planned(factory, 0, verify, verify_eager(factory, 0))
    assert outcome.bitwise_equal
    made = contestants.planned_contestant("planned", factory, 0, verify)
    made.run()
    assert all(tensor.untyped_storage().nbytes() >= tensor.nbytes for tensor in made.persistent())
    measured = contestants.measure_step(made.run, made.persistent)
    assert measured.measured_peak_bytes == predicted.peak_bytes


def test_state_whose_bytes_an_array_shares_is_not_moved():
    step, batch = contestants.build(zoo.factory("mlp@tiny"), 0)
    prepared = prepare(step, (batch,), name="mlp")
    options = Ask(Budget("min", host="64MiB"), limits=Limits(work=50, seed=0))
    arrays = [slot.current().detach().numpy() for slot in prepared.captured.state.tensors]
    found = prepared.plan(options).plan.programs[0]
    assert len(arrays) > 0
    names = {prepared.problem().storage_names[offload.storage] for offload in found.offloads}
    assert not names & {slot.name for slot in prepared.captured.state.tensors}
