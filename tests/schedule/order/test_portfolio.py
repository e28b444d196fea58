import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neaptide.outcome import Limits, TerminationReason
from neaptide.schedule.order import portfolio
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.neutral import from_mapping
from neaptide.schedule.order.portfolio import STAGES, best_order
from neaptide.schedule.order.regions.parts import PartKind, summarise_parts
from neaptide.schedule.order.regions.reduce import reduce
from neaptide.schedule.order.steps import to_steps
from neaptide_corpus.series_parallel import pumpkin, series_parallel
from neaptide_corpus.three_partition import hard_pumpkin, three_partition_numbers
from schedule.order.order_problems import brute_force, random_problem
from support.drawn import examples
from support.together import together

small = st.builds(
    random_problem, st.integers(0, 10**6), st.integers(0, 7), in_place=st.booleans(), mutation=st.booleans()
)


@given(small)
@settings(max_examples=examples(150), deadline=None)
def test_small_problems_are_proved(problem):
    outcome = best_order(problem)
    result = outcome.require()
    assert outcome.termination.reason is TerminationReason.OPTIMAL
    assert result.certificate.is_optimal
    assert (
        result.peak_bytes
        == result.order_lower_bound_bytes
        == evaluate_order(problem, result.order).peak_bytes
    )
    if problem.op_count:
        assert result.peak_bytes == brute_force(problem)
    assert result.gap == 0


@pytest.mark.slow
def test_a_hard_pumpkin_is_solved_by_the_reduction_of_large_regions(monkeypatch):
    done = []

    def spy(steps, limits, **options):
        reduced = reduce(steps, limits, **options)
        done.append((options["region_states"], reduced.is_solved))
        return reduced

    monkeypatch.setattr(portfolio, "reduce", spy)
    gadget = hard_pumpkin(three_partition_numbers(3, 0))
    result = best_order(from_mapping(gadget.form)).require()
    assert result.certificate.is_optimal
    assert result.peak_bytes == gadget.threshold_bytes
    assert [solved for _, solved in done] == [False, False, True]
    assert done[-1] == (portfolio.LARGE_REGION_STATES, True)


@together(("degree", "seed"), [(3, 0), (5, 0), (5, 1)])
def test_series_parallel_graphs_are_proved_by_the_first_reduction_alone(degree, seed):
    result = best_order(from_mapping(series_parallel(300, degree, seed))).require()
    assert result.certificate.is_optimal
    assert set(result.methods) <= {"program_order", "reduction"}


def test_interrupt_while_a_region_is_searched():
    """The reduction looks up within a region, and what is left is the problem as it was."""
    stop = threading.Event()
    problem = from_mapping(pumpkin(9, 400, 0))
    threading.Timer(0.01, stop.set).start()
    found = reduce(to_steps(problem), region_states=10**9, interrupt=stop)
    assert found.limit in {None, "interrupt"}
    assert problem.is_order(found.expand(range(found.steps.op_count)))
    stop.set()
    again = reduce(to_steps(problem), region_states=10**9, interrupt=stop)
    assert again.limit == "interrupt"
    assert again.steps.op_count == problem.op_count


def test_the_default_says_what_was_solved_on_its_own():
    problem = from_mapping(pumpkin(6, 120, 0))
    found = best_order(problem).require()
    (summary,) = summarise_parts(found.parts)
    assert (summary.kind, summary.count, summary.largest_ops, summary.degree) == (PartKind.PUMPKIN, 1, 118, 6)
    assert 0 < summary.states <= found.states


@together("stage", STAGES)
def test_a_stage_left_out_does_not_run_and_the_order_is_legal(stage):
    problem = random_problem(7, 30, reach=8)
    result = best_order(problem, Limits(work=3000), without=(stage,)).require()
    assert evaluate_order(problem, result.order).peak_bytes == result.peak_bytes
    assert result.peak_bytes <= evaluate_order(problem, range(30)).peak_bytes
    assert stage not in result.methods
