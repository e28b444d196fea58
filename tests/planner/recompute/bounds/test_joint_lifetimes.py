"""Bytes of answers that are carried out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from example_counts import examples
from neaptide.planner.recompute.bounds.joint_lifetimes import joint_profile
from neaptide.planner.recompute.bounds.joint_program import JointProgram, JointSolution
from neaptide.planner.recompute.bounds.step_tables import StepTables
from planner_problems import random_chain, random_instance


@given(st.integers(0, 10**6), st.integers(2, 12), st.data())
@settings(max_examples=examples(120), deadline=None)
def test_what_is_held_until_its_last_use_has_the_bytes_of_the_order(seed, count, data):
    tables = StepTables(random_instance(seed, count), None)
    places = st.lists(st.integers(0, count - 1), min_size=1, max_size=4, unique=True)
    positions = sorted(data.draw(places))
    held = tuple(
        (tables.made_before(p) & (tables.used_within(p, count) | tables.is_output)).astype(np.float64)
        for p in positions
    )
    again = (np.zeros(count),) * len(positions)
    solution = JointSolution(is_infeasible=False, bound=0.0, held=held, again=again)
    assert joint_profile(tables, positions, solution) == pytest.approx(tables.profile)


@given(st.integers(0, 10**6), st.integers(3, 8), st.floats(0.5, 0.95), st.data())
@settings(max_examples=examples(60), deadline=None)
def test_answers_fit_at_the_steps_of_their_program(seed, layers, share, data):
    tables = StepTables(random_chain(seed, layers), None)
    budget = int(share * tables.profile.max())
    places = st.lists(st.integers(1, 2 * layers - 1), min_size=1, max_size=4, unique=True)
    positions = sorted(data.draw(places))
    solution = JointProgram(tables, positions, budget).relax()
    if not solution.is_infeasible:
        profile = joint_profile(tables, positions, solution)
        assert (profile[positions] <= budget * (1 + 1e-6)).all()
