"""Ctrl-C and SIGTERM in processes of their own: while it imports, while a search runs, and where nothing listens."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from neaptide.plans import Plan
from neaptide_corpus.recompute_forms import recompute_form

PATIENCE_S = 120  # of a test on a machine with much else to do; nothing is asserted about time below it

# The runner of the tests may ignore SIGINT, as jobs in the background do, and children inherit that.
BEGIN = """
import atexit, hashlib, os, signal, sys, time
atexit.register(print, "taken down", file=sys.stderr)
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
"""

AT_IMPORT = """
class Strikes:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), {number})
        return None

sys.meta_path.insert(0, Strikes())
from neaptide.__main__ import run
sys.argv = ["neaptide", *{arguments!r}]
run()
"""

SEARCH = """
import neaptide.cli.recompute as command
from neaptide.__main__ import run

real = command._solve

def solve(name, step, allowed, limits, interrupt):
    assert not interrupt.is_set()
    print("searching", file=sys.stderr, flush=True)
    {body}
    return real(name, step, allowed, limits, interrupt)

command._solve = solve
sys.argv = ["neaptide", "recompute", "i.json", "--peak", "80%", "--json", "-o", "out.json"]
run()
"""
PORTFOLIO = """
import neaptide.planner.recompute.curve.search as engine
import neaptide.linear.solver as solver
from neaptide.__main__ import run

def never_ends(*_args, **_options):
    print("deaf", file=sys.stderr, flush=True)
    {body}

{place} = {deaf}
sys.argv = ["neaptide", "recompute", "i.json", "--peak", "60%", "--json", "-o", "out.json"]
run()
"""
# One strategy of many, and every call of the solver in C.
STRATEGY = (
    "real = engine.strategy; engine.strategy",
    "lambda name: never_ends if name == 'block_dp' else real(name)",
)
SOLVER = ("solver.milp = solver.linprog", "never_ends")
LISTENS = "while not interrupt.is_set(): time.sleep(0.01)"
HEARS_AND_GOES_ON = (
    LISTENS + "\n    print('heard', file=sys.stderr, flush=True)\n    while True: time.sleep(0.01)"
)
LISTENS_NO_MORE = "while True: time.sleep(0.01)"
# Minutes of computing without Python, which lets other threads run.
IS_IN_C = "hashlib.pbkdf2_hmac('sha256', b'', b'', 2**31 - 1)"
SWALLOWS = """
    while True:
        try:
            time.sleep(0.01)
        except KeyboardInterrupt:
            pass
"""


def start(program, folder, stdout=subprocess.PIPE):
    return subprocess.Popen(
        [sys.executable, "-c", BEGIN + program],
        cwd=folder,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(process, words):
    for line in process.stderr:
        if words in line:
            return line
    pytest.fail(f"it ended without saying {words!r}")


def end(process):
    """What it says. None of these processes is taken down: with torch loaded that takes seconds."""
    out, err = process.communicate(timeout=PATIENCE_S)
    assert "Traceback" not in err
    assert "taken down" not in err
    return process.returncode, out, err


def interrupted(program, folder, words, number=signal.SIGINT):
    """How a program ends that a signal comes to once it has said something."""
    process = start(program, folder)
    wait_for(process, words)
    process.send_signal(number)
    return end(process)


BOTH = pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)


@BOTH
@pytest.mark.parametrize("name", ["click", "neaptide.cli.layout"])
def test_while_it_imports(tmp_path, name, number):
    program = AT_IMPORT.format(name=name, number=int(number), arguments=["devices"])
    code, out, err = end(start(program, tmp_path))
    # Before the command line is there, SIGTERM does what it does to every process.
    assert code in {130, -signal.SIGTERM if number == signal.SIGTERM else 130}
    assert out == ""
    assert err.strip() in {"interrupted", ""}


@pytest.fixture
def instance(tmp_path):
    (tmp_path / "i.json").write_text(json.dumps(recompute_form("transformer", 20)))
    return tmp_path


@BOTH
def test_a_search_that_listens_gives_its_best(instance, number):
    code, out, err = interrupted(SEARCH.format(body=LISTENS), instance, "searching", number)
    assert code in {0, 3}
    assert "finishing with the best found so far" in err
    assert json.loads(out) == json.loads((instance / "out.json").read_text())


@pytest.mark.parametrize(
    "is_full", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["full", "closed"]
)
def test_the_best_has_its_code_where_it_cannot_be_printed(instance, is_full):
    with Path("/dev/full").open("w") as full:
        process = start(SEARCH.format(body=LISTENS), instance, full if is_full else subprocess.PIPE)
        if not is_full:
            process.stdout.close()
            process.stdout = None
        wait_for(process, "searching")
        process.send_signal(signal.SIGINT)
        code, _, err = end(process)
    assert code == 2 if is_full else code in {0, 3}
    assert ("error: the result cannot be printed" in err) == is_full
    assert "Exception ignored" not in err
    assert json.loads((instance / "out.json").read_text())


@pytest.mark.parametrize(
    "body",
    [IS_IN_C, *(pytest.param(one, marks=pytest.mark.slow) for one in (LISTENS_NO_MORE, SWALLOWS))],
    ids=["in C", "deaf", "swallows"],
)
def test_one_is_enough_for_what_does_not_listen(instance, body):
    code, _, err = interrupted(SEARCH.format(body=body), instance, "searching")
    assert code == 130
    assert err.rstrip().endswith("interrupted")


@BOTH
@pytest.mark.parametrize(("where", "body"), [(STRATEGY, LISTENS_NO_MORE), (SOLVER, IS_IN_C)])
def test_what_was_found_stays_where_a_part_does_not_listen(instance, where, body, number):
    program = PORTFOLIO.format(place=where[0], deaf=where[1], body=body)
    code, out, err = interrupted(program, instance, "deaf", number)
    assert code in {0, 3}, err
    assert "finishing with the best found so far" in err
    found = json.loads(out)
    assert found == json.loads((instance / "out.json").read_text())
    assert found["peak_bytes"] * 0.6 < found["budget_bytes"]  # below the baseline: what other parts had found


@pytest.mark.parametrize(
    "body",
    [HEARS_AND_GOES_ON, pytest.param(IS_IN_C, marks=pytest.mark.slow)],
    ids=["finishes for long", "in C"],
)
def test_the_second_ends_at_once(instance, body):
    process = start(SEARCH.format(body=body), instance)
    wait_for(process, "searching")
    process.send_signal(signal.SIGINT)
    if body == HEARS_AND_GOES_ON:
        wait_for(process, "heard")
    process.send_signal(signal.SIGINT)
    code, _, err = end(process)
    assert code == 130
    assert err.rstrip().endswith("interrupted")


VARIANTS = """
from neaptide.planner.variants.planning import VariantPlanning
from neaptide.__main__ import run

real = VariantPlanning._noted

def noted(self, plan):
    made = real(self, plan)
    if self.tried[-1].peak_bytes < self.tried[0].peak_bytes and not self.interrupt.is_set():
        print("met:", *(tried.peak_bytes for tried in self.tried), file=sys.stderr, flush=True)
        while not self.interrupt.is_set(): time.sleep(0.01)
    return made

VariantPlanning._noted = noted
sys.argv = ["neaptide", "plan", "zoo:mlp@tiny,batch=4096", "--latency", "+1000%", "--numerics", "close", "--device", "rtx3090",
            "--work-limit", "2000", "--workers", "1", "--json", "-o", "out.json"]
run()
"""


@pytest.mark.slow
@BOTH
def test_a_search_over_variants_gives_the_best_it_met(tmp_path, number):
    process = start(VARIANTS, tmp_path)
    peaks = [int(word) for word in wait_for(process, "met:").split()[1:]]
    process.send_signal(number)
    code, _, err = end(process)
    assert code == 0, err
    assert "finishing with the best found so far" in err
    usual = Plan.from_json((tmp_path / "out.json").read_text()).programs[0]
    tried = [variant.peak_bytes for variant in usual.parts.tried]
    assert tried[: len(peaks)] == peaks
    # The first region in parts is planned in any case.
    assert len(tried) <= len(peaks) + 2
    assert usual.predictions.peak_with_workspace_bytes == min(tried) < peaks[0]
