"""Debuggers, profilers and coverage look on while a step is captured; what they ask for is not asked by the step."""

from __future__ import annotations

import cProfile
import os
import subprocess
import sys
import time
from pathlib import Path

import coverage
import pytest

import neaptide
from frontends import observed_step
from neaptide.errors import CaptureError

SCRIPT = str(Path(observed_step.__file__))


def asks():
    """What those who look on ask for themselves."""
    os.path.realpath(SCRIPT)
    with open(SCRIPT):  # noqa: PTH123 - as a tracer does
        return time.perf_counter(), os.getcwd(), os.environ.get("HOME"), id(asks)  # noqa: PTH109


def by_function(frame, _event, _arg):
    if frame.f_code.co_filename != SCRIPT:
        return None
    asks()
    return by_function


class ByObject:
    def __call__(self, frame, _event, _arg):
        if frame.f_code.co_filename != SCRIPT:
            return None
        asks()
        return self.of_a_frame

    def of_a_frame(self, _frame, _event, _arg):
        asks()
        return self.of_a_frame


@pytest.mark.parametrize(
    ("register", "before", "looker"),
    [
        (sys.settrace, sys.gettrace, by_function),
        (sys.settrace, sys.gettrace, ByObject()),
        (sys.setprofile, sys.getprofile, ByObject().__call__),
    ],
    ids=["trace function", "trace object", "profile method"],
)
def test_a_python_tracer_may_ask_the_outside_world(register, before, looker):
    expected = observed_step.captured()
    then = before()
    register(looker)
    try:
        found = observed_step.captured()
    finally:
        register(then)
    assert found == expected


def test_a_step_that_asks_is_refused_while_a_tracer_asks_as_well():
    then = sys.gettrace()
    sys.settrace(by_function)
    try:
        with pytest.raises(CaptureError, match="the step asks the operating system"):
            observed_step.capture_step(lambda x: x * len(str(Path.cwd())), (observed_step.torch.ones(2),))
    finally:
        sys.settrace(then)


CORES = ["ctrace", pytest.param("pytrace", marks=pytest.mark.slow)]
if sys.version_info >= (3, 12):
    CORES.append("sysmon")


@pytest.mark.parametrize("core", CORES)
def test_the_smallest_step_is_captured_under_coverage(core, monkeypatch):
    expected, then = observed_step.captured(), sys.gettrace()
    monkeypatch.setenv("COVERAGE_CORE", core)
    watch = coverage.Coverage(data_file=None, config_file=False, include=[SCRIPT])
    watch.start()
    try:
        found = observed_step.captured()
    finally:
        watch.stop()
        sys.settrace(then)
    assert found == expected
    assert watch.get_data().lines(SCRIPT)


def run(folder, *options, **variables):
    """What the script prints in a process of its own that is started with these options."""
    root = str(Path(neaptide.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1", **variables}
    command = [sys.executable, *options, SCRIPT]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return int(done.stdout.rpartition("operations: ")[2])


@pytest.mark.slow
@pytest.mark.parametrize("core", CORES)
def test_a_process_of_its_own_captures_it_under_coverage_without_assertions(core, tmp_path):
    options = (
        "-O",
        *["-X", "dev", "-X", "importtime", "-X", "faulthandler"],
        "-m",
        "coverage",
        "run",
        f"--data-file={tmp_path / 'data'}",
    )
    options = (*options, f"--include={SCRIPT}")
    assert run(tmp_path, *options, COVERAGE_CORE=core) == observed_step.captured()
    assert (tmp_path / "data").stat().st_size


def test_a_step_is_captured_under_a_profiler_in_c():
    profile = cProfile.Profile()
    then = sys.getprofile()
    sys.setprofile(None)
    try:
        found = profile.runcall(observed_step.captured)
    finally:
        sys.setprofile(then)
    assert found == observed_step.captured()
    assert profile.getstats()
