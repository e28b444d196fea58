"""Windows that an answer does not break would not lift its bound; those that it breaks, all together, are enough."""

from __future__ import annotations

import json

import numpy as np
import pytest

from neaptide.planner.recompute.bounds.joint_program import JointProgram
from neaptide.planner.recompute.bounds.joint_rounds import broken_windows
from neaptide.planner.recompute.bounds.step_tables import StepTables
from neaptide.schedule.recompute_form import from_json
from neaptide_corpus.recompute_forms import recompute_form
from planner_problems import random_chain


def case(name):
    step = random_chain(7, 12) if name == "chain" else from_json(json.dumps(recompute_form(name, 60, 1)))
    tables = StepTables(step, None)
    budget = int(0.75 * tables.profile.max())
    above = np.flatnonzero(tables.profile > budget)
    positions = sorted(set(above[np.linspace(0, len(above) - 1, 6).astype(int)].tolist()))
    return tables, positions, budget


@pytest.mark.parametrize("name", ["chain", "transformer", "skips", "layered"])
def test_adding_what_is_broken_reaches_the_bound_of_all_windows(name):
    tables, positions, budget = case(name)
    every = JointProgram(tables, positions, budget)
    most = every.relax()
    assert not most.is_infeasible
    assert broken_windows(tables, positions, most, 99) == []
    windows = set()
    for _ in range(len(every.windows) + 1):
        program = JointProgram(tables, positions, budget, windows=windows)
        answer = program.relax()
        broken = broken_windows(tables, positions, answer, 2)
        assert set(broken) <= set(every.windows) - windows
        if not broken:
            break
        windows.update(broken)
    assert answer.bound == pytest.approx(most.bound, rel=1e-4)
    # Those that bind are enough.
    fewer = JointProgram(tables, positions, budget, windows=program.binding_windows())
    assert len(fewer.windows) <= len(windows)
    assert fewer.relax().bound == pytest.approx(answer.bound, rel=1e-4)
