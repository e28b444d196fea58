import os
import signal
import subprocess
import sys
import threading

import pytest

from neaptide.errors import MissingExtra, SolverError, VerifyError
from neaptide.outcome import Limits, TerminationReason
from neaptide_peers.cp_sat import process
from neaptide_peers.cp_sat.builder import CpModelBuilder
from neaptide_peers.cp_sat.model import Linear
from neaptide_peers.cp_sat.solve import CpSatSession, solve, solve_all
from peers.cp_sat.small_models import brute_force, market_split, random_model

needs_ortools = pytest.mark.skipif(not process.is_installed(), reason="needs ortools")


def small():
    b = CpModelBuilder()
    x, y = b.integer(0, 9), b.integer(0, 9)
    b.require(((1, x), (1, y)), at_least=7)
    b.minimise(Linear(((2, x), (1, y)), 5))
    return b.build()


@pytest.fixture(scope="module")
def session():
    with CpSatSession() as running:
        running.solve(small())  # so that no limit has to cover the start
        yield running


@needs_ortools
def test_random_models_against_brute_force(session):
    for seed in range(400):
        model = random_model(seed)
        outcome = session.solve(model)
        feasible, least = brute_force(model)
        ended = outcome.termination
        if not feasible:
            assert ended.reason is TerminationReason.INFEASIBLE, seed
            assert outcome.value is None
            continue
        assert ended.reason is TerminationReason.OPTIMAL, seed
        if model.objective is not None:
            assert (outcome.value.objective, ended.best, ended.bound) == (least, least, least), seed


@needs_ortools
def test_one_process_solves_several_models():
    first, second = solve_all([small(), random_model(3)], Limits(seed=4))
    assert first.value.values == (0, 7)
    assert first.termination.best == first.termination.bound == 12
    assert (second.value is not None) == brute_force(random_model(3))[0]
    assert "ortools" not in sys.modules


@needs_ortools
def test_limits_and_their_answers(session):
    model = market_split()
    short = session.solve(model, Limits(time_s=1.0))
    assert short.termination.reason is TerminationReason.FEASIBLE
    assert short.termination.limit == "time"
    assert 0 <= short.termination.bound < short.termination.best == short.value.objective
    work = [session.solve(model, Limits(work=2000, seed=5)) for _ in range(2)]
    assert work[0].termination.limit == "work"
    assert work[0].value == work[1].value
    assert work[0].termination == work[1].termination
    assert work[0].work == work[1].work > 0
    for spent, limits in (("time", Limits(time_s=0.0)), ("work", Limits(work=0))):
        nothing = session.solve(model, limits).termination
        assert (nothing.reason, nothing.limit) == (TerminationReason.NO_SOLUTION_FOUND, spent)
    first, rest = solve_all([model, small()], Limits(work=2000))
    assert first.value is not None
    assert rest.termination.limit == "work"


@needs_ortools
def test_several_workers_take_turns_under_a_work_limit():
    outcomes = [solve(market_split(3, 12), Limits(work=3000), workers=2) for _ in range(2)]
    assert outcomes[0].value == outcomes[1].value
    assert outcomes[0].termination == outcomes[1].termination


@needs_ortools
def test_interrupt_ends_the_solver():
    interrupt = threading.Event()
    interrupt.set()
    assert solve(small(), interrupt=interrupt).termination.reason is TerminationReason.INTERRUPTED
    polls = iter([False] * 90)
    with CpSatSession() as session:
        outcome = session.solve(market_split(), stop=lambda: next(polls, True))
        assert outcome.termination.reason is TerminationReason.INTERRUPTED
        assert outcome.termination.limit is None
        # The next model gets a process of its own.
        assert session.solve(small()).value.values == (0, 7)


def test_numbers_too_large_for_the_solver_prove_nothing():
    b = CpModelBuilder()
    b.minimise(Linear.of(b.integer(0, 1 << 70)))
    outcome = solve(b.build())
    assert outcome.termination.reason is TerminationReason.NO_SOLUTION_FOUND
    assert "64 bits" in outcome.termination.detail


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setattr(process.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r'pip install "ortools>=9.10'):
        solve(small())


@needs_ortools
def test_a_worker_that_is_killed_is_an_error():
    with CpSatSession() as session:
        session.solve(small())
        pid = session._process._process.pid
        threading.Timer(0.3, os.kill, (pid, signal.SIGKILL)).start()
        with pytest.raises(SolverError, match="exit code -9"):
            session.solve(market_split())
        assert session.solve(small()).value.values == (0, 7)


READY = 'import sys, time\nprint(\'{"type":"ready","version":"0"}\', flush=True)\n'


@pytest.fixture
def worker(monkeypatch, tmp_path):
    """Puts a script in place of the worker."""
    monkeypatch.setattr(process, "is_installed", lambda: True)
    monkeypatch.setattr(process, "_WORKER", "false_worker")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return (tmp_path / "false_worker.py").write_text


def test_what_a_dying_worker_wrote_is_in_the_message(worker):
    worker("raise ImportError('libortools.so is broken')")
    with pytest.raises(SolverError, match=r"libortools\.so is broken") as caught:
        solve(small())
    assert "exit code 1" in str(caught.value)
    worker(READY + "sys.exit(3)")
    with pytest.raises(SolverError, match="exit code 3"):
        solve(small())


def test_a_worker_that_overruns_is_ended_and_what_it_found_is_kept(worker):
    worker(READY + "time.sleep(60)")
    ended = solve(small(), Limits(time_s=0.5)).termination
    assert (ended.reason, ended.limit) == (TerminationReason.NO_SOLUTION_FOUND, "time")
    found = '{"type":"found","values":[2,5]}\\n{"type":"bound","objective":11.0}'
    worker(READY + f"print('{found}', flush=True)\ntime.sleep(60)")
    outcome = solve(small(), Limits(time_s=1.5))
    assert outcome.value.values == (2, 5)
    assert outcome.termination.reason is TerminationReason.FEASIBLE
    assert (outcome.termination.best, outcome.termination.bound) == (14, 11)


def test_a_worker_is_not_believed(worker):
    ended = '{"type":"ended","status":"STATUS","bound":null,"deterministic_s":0.0,"detail":"why"}'
    for lines, error, words in (
        ("nonsense", SolverError, "cannot be read"),
        (
            '{"type":"found","values":[0,0]}\\n' + ended.replace("STATUS", "OPTIMAL"),
            VerifyError,
            "constraint 0",
        ),
        (ended.replace("STATUS", "OPTIMAL"), SolverError, "does not fit"),
        ('{"type":"found","values":[0,7]}\\n' + ended.replace("STATUS", "INFEASIBLE"), SolverError, "fit"),
        (ended.replace("STATUS", "TIRED"), SolverError, "TIRED"),
        (ended.replace("STATUS", "MODEL_INVALID"), VerifyError, "why: why"),
    ):
        worker(READY + f"sys.stdin.readline()\nprint('{lines}', flush=True)\nsys.stdin.readline()")
        with pytest.raises(error, match=words):
            solve(small())


@needs_ortools
def test_the_worker_ends_with_whoever_started_it():
    running = subprocess.Popen(
        [sys.executable, "-P", "-m", "neaptide_peers.cp_sat.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with running:
        assert b"ready" in running.stdout.readline()
        running.stdin.close()
        assert running.wait(timeout=20) == 0
