from __future__ import annotations

from math import log

import pytest

from neaptide.outcome import Limits
from neaptide.planner.passes.features import NAMES
from neaptide.planner.passes.learned import LearnedStrategy
from neaptide.planner.passes.prior import (
    FORMAT,
    Linear,
    PassRow,
    Predicted,
    Prior,
    PriorFile,
    built_in_prior,
    columns,
)
from neaptide.planner.passes.search import search_passes
from planner.passes.pass_play import TableSpace

WIDTH = len(NAMES) + 3  # one pass in the table: whether it finds a place, and two of its features


def prior(slope: float = -0.5, mean: float = -0.1) -> Prior:
    """Of one pass `p`, whose direct gain depends on its first feature, between 0 and 1 in the training set."""
    direct = Linear(mean, (slope, *(0.0,) * (WIDTH - 1)))
    flat = Linear(0.2, (0.0,) * WIDTH)
    zeros, ones = (0.0,) * WIDTH, (1.0,) * WIDTH
    row = PassRow(50, zeros, ones, zeros, ones, direct, flat)
    return Prior(PriorFile(FORMAT, NAMES, ("p",), {"p": row}, -0.01, -0.02))


def facts(first: float):
    return {"p": (first, *(0.0,) * (len(NAMES) - 1))}


def test_a_prediction_follows_features_within_what_was_seen():
    assert prior().predict("p", facts(0.5)).direct == pytest.approx(-0.1 - 0.25)
    assert prior().predict("p", facts(0.0)).direct == pytest.approx(-0.1)


def test_without_support_it_goes_back_to_the_table():
    far = prior().predict("p", facts(9.0)).direct
    assert far == pytest.approx(-0.1 - 0.5 / 9.0)
    assert abs(prior().predict("p", facts(1e6)).direct + 0.1) < 1e-5


def test_what_is_reachable_is_never_worse_than_nothing():
    assert prior().predict("p", facts(0.5)).reach == 0.0


def test_a_pass_that_is_not_in_the_table_is_expected_to_gain_as_much_as_the_best():
    for mean, expected in ((-0.1, -0.1), (0.1, -0.01)):
        assert prior(mean=mean).predict("q", {"q": (0.0,) * len(NAMES)}) == Predicted(expected, -0.02)


def test_columns_say_which_other_passes_find_places_too():
    both = {**facts(0.5), "q": tuple(float(k) for k in range(len(NAMES)))}
    made = columns("p", both, ("q", "absent")).tolist()
    touched, rest = NAMES.index("peaks_touched"), NAMES.index("rest_without_all")
    assert made == [*both["p"], 1.0, float(touched), float(rest), 0.0, 0.0, 0.0]


def test_the_prior_of_the_package_is_read_and_predicts():
    found = built_in_prior()
    assert found is built_in_prior()
    for name in (*found.file.passes, "unknown"):
        predicted = found.predict(name, {name: (0.5,) * len(NAMES)})
        assert -log(1e3) < predicted.direct < log(1e3)
        assert -log(1e3) < predicted.reach <= 0


def test_of_two_passes_the_one_that_is_predicted_to_be_lower_is_measured_first():
    class Features(TableSpace):
        def measure(self, state):
            made = super().measure(state)
            some = {name: facts(1.0 if name == "p" else 0.0)["p"] for name in made.facts}
            return type(made)(made.nbytes, some)

    space = Features({"start": 100, "a": 90, "b": 50}, {("start", "q"): "a", ("start", "p"): "b"})
    first = search_passes(space, LearnedStrategy(prior()), Limits(work=2)).require()
    assert first.passes(1) == ("p",)
    opposite = search_passes(space, LearnedStrategy(prior(slope=0.5, mean=0.1)), Limits(work=2)).require()
    assert opposite.passes(1) == ("q",)
