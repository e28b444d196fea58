"""The solver writes nothing to stdout: not HiGHS's own line, and not while a whole plan is made."""

import ctypes
import json
import os
import sys
import threading

import numpy as np
import pytest
from scipy.optimize import milp
from scipy.sparse import csr_array

from neaptide.linear import solver
from neaptide.linear.silence import silent_c_stdout
from neaptide.linear.tolerances import WHOLE_GAP
from neaptide.outcome import Limits
from neaptide.planner.objective import PlanningProblem
from neaptide.planner.strategies import strategy
from neaptide.planner.strategies.program_order import baseline
from neaptide.schedule.recompute_form import from_json
from neaptide_corpus.recompute_forms import recompute_form

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the C library of Linux")


@pytest.fixture
def c_puts(capfd):
    """C's `puts` and, as text, all that has come through stdout so far."""
    libc = ctypes.CDLL(None)

    def written():
        libc.fflush(None)
        return capfd.readouterr().out

    written()
    return libc.puts, written


def uneven(seed):
    """A mixed program whose coefficients are far apart: HiGHS repairs solutions of some."""
    rng = np.random.default_rng(seed)
    rows = np.where(rng.random((20, 40)) < 0.4, rng.random((20, 40)) * 10 ** rng.uniform(-4, 3, (20, 40)), 0)
    whole = np.ones(40)
    whole[::3] = 0
    limits = [(csr_array(rows), rows.sum(1) * 0.4)]
    return -rng.random(40), limits, np.zeros(40), 1.0 + (whole == 0) * 5, whole


def test_no_line_of_the_solver_itself(c_puts):
    _, written = c_puts
    for seed in (2, 49, 111, 147):
        found = solver.solve_mixed(*uneven(seed), relative_gap=WHOLE_GAP, nodes=200)
        assert found.values is not None
    assert written() == ""


def test_a_plan_leaves_stdout_to_the_user(c_puts, monkeypatch):
    puts, written = c_puts
    calls = []

    def noisy(*args, **kwargs):
        calls.append(puts(b"a line of the solver"))
        return milp(*args, **kwargs)

    monkeypatch.setattr(solver, "milp", noisy)
    step = from_json(json.dumps(recompute_form("transformer", 8)))
    problem = PlanningProblem(step, int(0.6 * baseline(step).peak_with_workspace_bytes))
    strategy("lagrangian")(problem, Limits(work=1_000), None)
    assert calls
    assert written() == ""


def test_what_others_write_comes_through_before_between_and_after(c_puts):
    puts, written = c_puts
    puts(b"before")
    inside, leave = threading.Event(), threading.Event()

    def hold():
        with silent_c_stdout():
            inside.set()
            leave.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait(60)
    with silent_c_stdout():
        os.write(1, b"python\n")
        puts(b"dropped")
    puts(b"dropped, too: the other thread is still inside")
    leave.set()
    thread.join()
    puts(b"after")
    assert sorted(written().split()) == ["after", "before", "python"]
