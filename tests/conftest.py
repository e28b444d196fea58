"""Shared fixtures: hypothesis profiles and golden files."""

from __future__ import annotations

import gc
import logging
import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from neaptide.planner.failed_stages import failing_stages

for profile, count in (("ci", 6), ("full", 25)):  # they differ in `example_counts` as well
    settings.register_profile(
        profile,
        max_examples=count,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
settings.register_profile("thorough", max_examples=500, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

HERE = Path(__file__).parent
GOLDEN = HERE / "golden"
# No command and no public function needs what they test, unless a peer is asked for by name: they are slow tests.
BESIDE = (HERE / "peers", HERE / "corpus")
gc.disable()  # nothing that is collected here is garbage


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files; review the diff")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """What only slow tests need is not even imported for the others."""
    return True if collection_path in BESIDE and "not slow" in config.option.markexpr else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if any(folder in item.path.parents for folder in BESIDE):
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """Two things are left out that take a seventh of the time of the tests and tell nothing."""
    # pytest listens to every logger that does not hand on. Where somebody listens, torch writes down its stack for each
    # symbol that it makes.
    traces = logging.getLogger("torch.__trace")
    traces.handlers.clear()
    traces.propagate = True
    # What was imported and the graphs that tests keep are of no interest to the collector, and there are many.
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 100)
    gc.enable()


@pytest.fixture(autouse=True, scope="session")
def _failing_stages_raise():
    """A part of a search that fails takes its test down; users have the best plan of the other parts."""
    with failing_stages(are_raised=True):
        yield


@pytest.fixture(autouse=True, scope="session")
def _kept_measurements(tmp_path_factory: pytest.TempPathFactory):
    """What the machine and its operations take is measured once for all tests of a process, away from the user's own.

    A test that is about the cache has one of its own.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEAPTIDE_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "neaptide-cache"))
        yield


@pytest.fixture(autouse=True, scope="session")
def _catalogue(tmp_path_factory: pytest.TempPathFactory):
    """Captured steps are those of this run; at its end they are as they were captured."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "catalogue"
    folder.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CATALOGUE_OF_TESTS", str(folder))
        yield
    if "support.catalogue" in sys.modules:
        assert not sys.modules["support.catalogue"].damaged(), "a test has run a step that others share"


@pytest.fixture
def traced_once(monkeypatch: pytest.MonkeyPatch):
    """What the public functions capture is traced once in this process: for tests of what they do with a capture."""
    from support import catalogue

    monkeypatch.setattr("neaptide.runtime.steps.capturing.capture_step", catalogue.traced_once)


@pytest.fixture(autouse=True)
def _no_kept_floors():
    """A plan that an error of one test named as reachable is not given to another test."""
    yield
    if "neaptide.policy.kept_floors" in sys.modules:
        sys.modules["neaptide.policy.kept_floors"].FLOORS.clear()


@pytest.fixture
def golden(request: pytest.FixtureRequest):
    """Compares text with the golden file of that name (`ir/loop.txt`), or rewrites the file with --update-golden."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
        assert path.exists(), f"{name} is missing; run pytest with --update-golden and review it"
        assert text == path.read_text(encoding="utf-8")

    return check
