"""What each command asks of the api, and what it prints."""

import json
import os
import signal
import sys
import warnings
from pathlib import Path

import pytest

from neaptide.budget import Budget
from neaptide.errors import InfeasibleBudget
from neaptide.movers.mover import SlowMemory
from neaptide.plans import Plan
from neaptide.report.comparison_text import comparison_document
from neaptide.report.plan_text import plan_text
from neaptide.report.profile_text import profile_document
from neaptide.report.run_text import run_document
from together import together

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
        ("gpt2@paper", {"device": "meta"}),
        ("gpt2@paper,device=cpu", {}),
        ("gpt2@paper", {}),
        ("gpt2@paper", {"device": "meta"}),
        ("gpt2@paper", {}),
    ]
    devices = [options["device"] for _, _, options in fake_api.calls]
    assert devices == ["rtx4090", "rtx4090", None, "rtx4090", None]


def test_an_unknown_device_is_refused_before_the_target_is_touched(call, fake_api):
    ending = call("profile", TARGET, "--device", "abacus")
    assert ending.code == 2
    assert "rtx4090" in ending.err
    assert "loading" not in ending.err


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


def test_a_plan_that_is_not_saved_names_no_file(call, fake_api):
    ending = call("plan", TARGET)
    assert "Next: save the plan" in ending.out
    assert "--plan" not in ending.out


def test_plan_as_json_is_the_plan_file(call, fake_api, samples):
    assert Plan.from_json(call("plan", TARGET, "--json").out) == samples.plan()


def test_quiet_prints_the_result_alone(call, fake_api):
    assert "plan saved" not in call("plan", TARGET, "-q", "-o", "p.json").err


def test_a_work_limit_takes_the_place_of_the_time_limit(call, fake_api):
    call("plan", TARGET)
    call("plan", TARGET, "--work-limit", "1000")
    call("plan", TARGET, "--work-limit", "1000", "--time-limit", "1s")
    limits = [(options["time_limit_s"], options["work_limit"]) for _, _, options in fake_api.calls]
    assert limits == [(20.0, None), (None, 1000), (1.0, 1000)]


def test_an_arena_is_asked_for_with_its_copies(call, fake_api):
    from neaptide.runtime.arena.plan import ArenaOptions

    call("compare", TARGET, "--repeats", "1")
    call("compare", TARGET, "--arena")
    call("compare", TARGET, "--arena", "--arena-copies", "none")
    asked = [options["arena"] for _, _, options in fake_api.calls]
    assert asked == [False, ArenaOptions(), ArenaOptions(copies="none")]
    assert call("compare", TARGET, "--arena-copies", "some").code == 2


def infeasible(samples):
    error = InfeasibleBudget("no plan", smallest_peak_bytes=2**30, lower_bound_bytes=2**29, alive=("h0",))
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
    assert content["error"]["alive"] == ["h0"]


def test_an_output_without_a_folder_is_refused_before_planning(call, fake_api):
    ending = call("plan", TARGET, "-o", "nowhere/p.json")
    assert ending.code == 2
    assert "there is no folder" in ending.err
    assert fake_api.calls == []


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


def test_the_second_interrupt_aborts(call, fake_api):
    before = signal.getsignal(signal.SIGINT)

    def twice():
        fake_api.calls[0][2]["interrupt"].is_set()
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    fake_api.during = twice
    assert call("plan", TARGET).code == 130
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


def test_an_interrupt_that_a_library_turns_into_its_own_error_is_an_interrupt(call, fake_api):
    def during():
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt as error:
            raise ImportError("initialisation failed") from error

    fake_api.during = during
    assert call("profile", TARGET).code == 130


def test_an_interrupt_that_is_ignored_stays_ignored(call, fake_api):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        fake_api.during = lambda: os.kill(os.getpid(), signal.SIGINT)
        assert call("plan", TARGET).code == 0
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_run(call, fake_api, samples, plan_file):
    ending = call("run", TARGET, "--plan", plan_file, "--verify", "--steps", "2")
    assert ending.code == 0
    assert ending.out == run_document(samples.run()).plain() + "\n"
    _, (_, plan), options = fake_api.calls[0]
    assert plan == samples.plan()
    assert (options["verify"], options["steps"]) == (True, 2)
    assert call("run", TARGET, "--plan", plan_file).code == 0
    assert fake_api.calls[1][2]["verify"] is False


def test_run_with_a_plan_that_is_not_there_is_usage(call, fake_api):
    assert call("run", TARGET, "--plan", "nothing.json").code == 2


def test_compare(call, fake_api, samples):
    ending = call(
        "compare", TARGET, "--peak", "60%", "--also", "a", "--also", "b", "--no-eager", "--repeats", "2"
    )
    assert ending.code == 0
    assert ending.out == comparison_document(samples.comparison()).plain() + "\n"
    options = fake_api.calls[0][2]
    assert (options["also"], options["eager"], options["repeats"]) == (("a", "b"), False, 2)
    assert options["verify"] is True
    call("compare", TARGET, "--no-verify")
    assert fake_api.calls[1][2]["verify"] is False
    assert fake_api.calls[1][2]["budget"] is None


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


@pytest.mark.parametrize(
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
