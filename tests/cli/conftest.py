"""The command line in this process: what it prints and how it ends; and an api that answers at once."""

import os
import signal
import sys
import types
from dataclasses import dataclass

import pytest

import neaptide
from neaptide.cli.main import main
from report import samples as report_samples

FACTORY = """
print("loading")

def factory():
    print("building")
    return (lambda batch: batch), {"x": 1}
"""


@dataclass(frozen=True)
class Ending:
    code: int
    out: str
    err: str


@pytest.fixture
def samples():
    return report_samples


@pytest.fixture(autouse=True)
def signals_as_in_a_terminal():
    """Interrupts arrive, even where the tests themselves were started with them ignored."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(autouse=True)
def clean_place(tmp_path, monkeypatch, tmp_path_factory):
    """An empty folder, no settings of the developer's own, and modules and paths put back."""
    for name in list(os.environ):
        if name.startswith("NEAPTIDE_"):
            monkeypatch.delenv(name)
    # Measurements of this machine are kept for the whole run, and away from the developer's own.
    monkeypatch.setenv("NEAPTIDE_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "neaptide-cache"))
    monkeypatch.setenv("TORCH_CPP_LOG_LEVEL", "ERROR")
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train_me.py").write_text(FACTORY)
    yield tmp_path
    for name in set(sys.modules) - before:
        if not name.startswith(("torch", "neaptide.")):
            module = sys.modules[name]
            if str(getattr(module, "__file__", "")).startswith(str(tmp_path)):
                del sys.modules[name]


@pytest.fixture
def call(capfd):
    def run(*arguments: str) -> Ending:
        code = main([str(argument) for argument in arguments])
        captured = capfd.readouterr()
        return Ending(code, captured.out, captured.err)

    return run


@pytest.fixture
def fake_api(monkeypatch):
    """Stands in for neaptide.api: records the calls and returns samples; set `.error` to have it raise."""
    api = types.SimpleNamespace(
        calls=[], error=None, during=lambda: None, comparison=report_samples.comparison()
    )

    def answer(name, result):
        def function(*args, **kwargs):
            api.calls.append((name, args, kwargs))
            sys.stdout.write("noise of the step\n")
            api.during()
            if name in {"run", "compare"}:
                args[0]()
            if api.error is not None:
                raise api.error
            return result()

        return function

    api.profile = answer("profile", report_samples.profile)
    api.plan = answer("plan", report_samples.plan)
    api.run = answer("run", report_samples.run)
    api.compare = answer("compare", lambda: api.comparison)
    monkeypatch.setitem(sys.modules, "neaptide.api", api)
    monkeypatch.setattr(neaptide, "api", api, raising=False)
    return api
