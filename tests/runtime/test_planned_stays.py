"""Steps whose plans store and load run as eager does."""

from __future__ import annotations

import pytest

from neaptide import zoo
from neaptide.outcome import Limits
from neaptide.planner.budget import Budget
from neaptide.runtime import contestants
from neaptide.runtime.prepared_step import prepare
from neaptide.runtime.search_options import SearchOptions
from neaptide.runtime.verification import verify_eager, verify_planned


@pytest.mark.parametrize(
    ("spec", "peak", "atomic"),
    [
        ("mlp@tiny", "80%", False),
        ("mlp@tiny", "min", False),
        pytest.param("gpt2@tiny", "80%", False, marks=pytest.mark.slow),
        pytest.param("gpt2@tiny", "min", False, marks=pytest.mark.slow),
        pytest.param("gpt2@tiny", "min", True, marks=pytest.mark.slow),
    ],
)
def test_a_planned_step_with_stays_gives_the_bits_and_the_peak_that_were_predicted(spec, peak, atomic):
    factory = zoo.factory(spec)
    step, batch = contestants.build(factory, 0)
    prepared = prepare(step, (batch,), name=spec)
    options = SearchOptions(Budget(peak, host="64MiB"), limits=Limits(work=2000, seed=0), atomic=atomic)
    found = prepared.plan(options)
    program = found.plan.programs[0]
    assert program.stays
    verify = contestants.rebind(found.variant)
    outcome, _ = verify_planned(factory, 0, verify, verify_eager(factory, 0))
    assert outcome.bitwise_equal
    made = contestants.planned_contestant("planned", factory, 0, verify)
    made.run()
    measured = contestants.measure_step(made.run, made.resident)
    assert measured.measured_peak_bytes == program.predictions.peak_bytes
