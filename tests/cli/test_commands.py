"""What each command asks of the api, and what it prints."""

import json
import os
import signal
import sys
import warnings
from pathlib import Path

import pytest

from neaptide.budget import Budget
from neaptide.copy_engines.copy_engine import SlowMemory
from neaptide.errors import InfeasibleBudget
from neaptide.plans import Plan
from neaptide.report.comparison_text import comparison_document
from neaptide.report.plan_text import plan_text
from neaptide.report.profile_text import profile_document
from neaptide.report.run_text import run_document
from neaptide.runtime.arena.plan import ArenaOptions
from support.together import together

TARGET = "train_me.py:factory"


@pytest.fixture
def plan_file(samples, tmp_path):
    path = tmp_path / "plan.json"
    samples.plan().save(path)
    return path


def test_profile_prints_the_report_and_keeps_stdout_clean(call, fake_api, samples):
    ending = call("profile", TARGET, "--seed", "7")
    assert ending.code == 0
    assert ending.out == profile_document(samples.profile()).plain() + "\n"
    for noise in ("loading", "building", "noise of the step"):
        assert noise in ending.err
    name, (step, batch), options = fake_api.calls[0]
    assert (name, step("same"), batch) == ("profile", "same", {"x": 1})
    assert (options["device"], options["name"], options["seed"]) == (None, TARGET, 7)


def test_json_is_one_object(call, fake_api, tmp_path):
    ending = call("profile", TARGET, "--json", "-o", "report.json")
    content = json.loads(ending.out)
    assert content["predicted_peak_bytes"] == 372 * 2**20
    assert json.loads((tmp_path / "report.json").read_text()) == content


def test_a_zoo_model_is_profiled_for_a_device_without_weights(call, fake_api, monkeypatch):
    asked = []
    monkeypatch.setattr(
        "neaptide.zoo.factory",
        lambda spec, **options: asked.append((spec, options)) or (lambda: (lambda batch: batch, 1)),
    )
    call("profile", "zoo:gpt2@paper", "--device", "RTX4090")
    call("profile", "zoo:gpt2@paper,device=cpu", "--device", "rtx4090")
    call("profile", "zoo:gpt2@paper")
    call("compare", "zoo:gpt2@paper", "--device", "rtx4090")
    call("profile", "zoo:gpt2@paper", "--device", "this-machine")
    assert asked == [
        ("gpt2@paper", {"device": "cuda"}),
        ("gpt2@paper,device=cpu", {}),
        ("gpt2@paper", {}),
        ("gpt2@paper", {"device": "cuda"}),
        ("gpt2@paper", {}),
    ]
    devices = [options["device"] for _, _, options in fake_api.calls]
    assert devices == ["rtx4090", "rtx4090", None, "rtx4090", None]


def test_plan_is_saved_and_explained(call, fake_api, samples, tmp_path):
    ending = call(
        *("plan", TARGET, "--peak", "60%", "--latency", "+10%", "--host", "1GiB"),
        *("--host-rate", "1GB", "--host-folder", "/scratch"),
        *("--time-limit", "2m", "--atomic", "-o", "p.json"),
    )
    assert ending.code == 0
    assert ending.out == plan_text(samples.plan(), path="p.json") + "\n"
    assert "--plan p.json" in ending.out
    assert "plan saved in p.json" in ending.err
    assert Plan.load(tmp_path / "p.json") == samples.plan()
    options = fake_api.calls[0][2]
    assert options["budget"] == Budget("60%", "+10%", host="1GiB")
    assert options["slow"] == SlowMemory(bytes_per_s=1e9, folder=Path("/scratch"))
    assert (options["time_limit_s"], options["work_limit"], options["atomic"]) == (120, None, True)


def test_a_plan_that_is_not_saved_names_no_file_and_its_json_is_the_plan_file(call, fake_api, samples):
    ending = call("plan", TARGET)
    assert "Next: save the plan" in ending.out
    assert "--plan" not in ending.out
    assert Plan.from_json(call("plan", TARGET, "--json").out) == samples.plan()
    assert "plan saved" not in call("plan", TARGET, "-q", "-o", "p.json").err


@together(
    ("arguments", "asked"),
    [
        (("plan",), {"time_limit_s": 20.0, "work_limit": None}),
        (("plan", "--work-limit", "1000"), {"time_limit_s": None, "work_limit": 1000}),
        (
            ("plan", "--work-limit", "1000", "--time-limit", "1s"),
            {"time_limit_s": 1.0, "work_limit": 1000},
        ),
        (("compare", "--repeats", "1"), {"arena": False, "repeats": 1, "verify": True}),
        (("compare", "--arena"), {"arena": ArenaOptions()}),
        (("compare", "--arena", "--arena-copies", "none"), {"arena": ArenaOptions(copies="none")}),
        (("compare", "--no-verify"), {"verify": False, "budget": None}),
        (
            ("compare", "--peak", "60%", "--also", "a", "--also", "b", "--no-eager"),
            {"budget": Budget("60%"), "also": ("a", "b"), "eager": False, "verify": True},
        ),
        (("run", "--plan", "plan.json"), {"verify": False, "steps": 3}),
        (("run", "--plan", "plan.json", "--verify", "--steps", "2"), {"verify": True, "steps": 2}),
    ],
)
def test_what_a_command_asks_of_the_api(call, fake_api, plan_file, arguments, asked):
    command, *options = arguments
    assert call(command, TARGET, *options).code == 0
    told = fake_api.calls[-1][2]
    assert {name: told[name] for name in asked} == asked


@together(
    ("arguments", "words"),
    [
        (("compare", TARGET, "--arena-copies", "some"), "--arena-copies"),
        (("run", TARGET, "--plan", "nothing.json"), "nothing.json"),
        (("plan", TARGET, "-o", "nowhere/p.json"), "there is no folder"),
        (("profile", TARGET, "--device", "abacus"), "rtx4090"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_the_target_is_touched(call, fake_api, arguments, words):
    ending = call(*arguments)
    assert ending.code == 2
    assert words in ending.err
    assert "loading" not in ending.err
    assert fake_api.calls == []


def infeasible(samples):
    error = InfeasibleBudget("no plan", smallest_peak_bytes=2**30, lower_bound_bytes=2**29, live=("h0",))
    error.plan = samples.plan()
    return error


def test_a_budget_out_of_reach_still_writes_the_best_plan(call, fake_api, samples, tmp_path):
    fake_api.error = infeasible(samples)
    ending = call("plan", TARGET, "--peak", "1MiB", "-o", "p.json")
    assert ending.code == 3
    assert ending.out == ""
    assert ending.err.endswith("error: no plan\n")
    assert Plan.load(tmp_path / "p.json") == samples.plan()
    content = json.loads(call("plan", TARGET, "--peak", "1MiB", "--json").out)
    assert content["error"]["smallest_peak_bytes"] == 2**30
    assert content["error"]["live"] == ["h0"]


def test_the_first_interrupt_asks_for_the_best_plan(call, fake_api):
    before = signal.getsignal(signal.SIGINT)

    def during():
        # A search looks at the event again and again; from the first time on there is something to keep.
        assert not fake_api.calls[0][2]["interrupt"].is_set()
        os.kill(os.getpid(), signal.SIGINT)

    fake_api.during = during
    ending = call("plan", TARGET)
    assert ending.code == 0
    assert fake_api.calls[0][2]["interrupt"].is_set()
    assert "press Ctrl-C again" in ending.err
    assert signal.getsignal(signal.SIGINT) is before


@together("number", [signal.SIGINT, signal.SIGTERM])
@together("command", ["profile", "plan", "run", "compare"])
def test_without_a_search_that_listens_the_first_interrupt_aborts(call, fake_api, plan_file, command, number):
    before = signal.getsignal(number)
    fake_api.during = lambda: os.kill(os.getpid(), number)
    ending = call(command, TARGET, *(["--plan", plan_file] if command == "run" else []))
    assert ending.code == 130
    assert ending.err.endswith("interrupted\n")
    assert signal.getsignal(number) is before


def test_an_interrupt_that_is_ignored_stays_ignored(call, fake_api):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        fake_api.during = lambda: os.kill(os.getpid(), signal.SIGINT)
        assert call("plan", TARGET).code == 0
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_reports_are_printed(call, fake_api, samples, plan_file):
    ending = call("run", TARGET, "--plan", plan_file)
    assert ending.out == run_document(samples.run()).plain() + "\n"
    assert fake_api.calls[0][1][1] == samples.plan()
    ending = call("compare", TARGET, "--peak", "60%")
    assert (ending.code, ending.out) == (0, comparison_document(samples.comparison()).plain() + "\n")


def test_compare_above_the_budget_prints_the_table_and_exits_with_3(call, fake_api, samples):
    fake_api.comparison = samples.comparison(budget_bytes=2**20)
    ending = call("compare", TARGET, "--peak", "1MiB")
    assert ending.code == 3
    assert "NOT held" in ending.out


def test_explain(call, samples, plan_file):
    ending = call("explain", plan_file)
    assert ending.code == 0
    assert ending.out == plan_text(samples.plan(), path=str(plan_file)) + "\n"
    assert Plan.from_json(call("explain", plan_file, "--json").out) == samples.plan()


@together(
    ("target", "code", "words"),
    [
        ("zoo:mlp@tiny", 2, "only a plan can be explained"),
        ("train_me.py:factory", 2, "only a plan can be explained"),
        ("nothing.json", 2, "there is no plan file"),
        ("train_me.txt", 4, "truncated or no JSON"),
    ],
)
def test_explain_of_what_is_no_plan(call, tmp_path, target, code, words):
    (tmp_path / "train_me.txt").write_text("hello")
    ending = call("explain", target)
    assert ending.code == code
    assert words in ending.err


def test_an_ambiguous_size_is_noted_in_words(call, fake_api):
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        ending = call("plan", TARGET, "--peak", "20G", "-q")
    assert ending.code == 0
    assert "note: '20G' is read as 20GiB; write the unit in full\n" in ending.err
    assert "UserWarning" not in ending.err


@pytest.mark.parametrize("arguments", [["profile"], ["plan"], ["compare"], ["run", "--plan", "plan.json"]])
def test_without_torch_the_pip_command_is_given(call, monkeypatch, plan_file, arguments):
    monkeypatch.setitem(sys.modules, "torch", None)
    ending = call(*arguments, TARGET)
    assert ending.code == 4
    assert 'pip install "torch>=2.11"' in ending.err


def test_the_second_interrupt_aborts(call, fake_api):
    before = signal.getsignal(signal.SIGINT)

    def twice():
        fake_api.calls[0][2]["interrupt"].is_set()
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    fake_api.during = twice
    assert call("plan", TARGET).code == 130
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_that_a_library_turns_into_its_own_error_is_an_interrupt(call, fake_api):
    def during():
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt as error:
            raise ImportError("initialisation failed") from error

    fake_api.during = during
    assert call("profile", TARGET).code == 130
