"""Endings: exit codes, what stands on which stream, laziness."""

import json
import subprocess
import sys

import pytest

from neaptide import errors
from neaptide.cli import exit_codes
from together import together

LAZY = ("torch", "numpy", "rich", "msgspec", "scipy", "tomllib", "importlib.metadata")


@together("arguments", [["--help"], ["plan", "--help"], ["plan", "--print-config"]])
def test_help_imports_nothing_heavy(arguments):
    allowed = {"tomllib", "msgspec"} if "--print-config" in arguments else set()
    code = (
        "import sys; from neaptide.cli.main import main; "
        f"code = main({arguments!r}); "
        f"print(sorted(set({LAZY!r}) & set(sys.modules)), code, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded, code = done.stderr.strip().rsplit(" ", 1)
    assert code == "0"
    assert set(json.loads(loaded.replace("'", '"'))) <= allowed


def test_help_lists_the_commands_and_every_exit_code(call):
    ending = call("--help")
    assert ending.code == 0
    for command in ("profile", "plan", "run", "compare", "explain", "doctor", "devices"):
        assert f"\n  {command} " in ending.out
    for code, meaning in exit_codes.MEANINGS.items():
        assert f"{code:>3}  {meaning}" in ending.out
    assert "bash_source" in ending.out


def test_version(call):
    ending = call("--version")
    assert (ending.code, ending.out.split()[0]) == (0, "neaptide,")


def test_exit_codes_are_those_of_the_error_classes():
    def classes(base):
        return [base, *(c for sub in base.__subclasses__() for c in classes(sub))]

    assert {c.exit_code for c in classes(errors.NeaptideError)} <= set(exit_codes.MEANINGS)


@pytest.mark.parametrize(
    "arguments",
    [["plan"], ["plan", "train_me.py:factory", "--no-such"], ["nothing"], ["run", "train_me.py:factory"]],
)
def test_wrong_arguments_are_usage(call, arguments):
    ending = call(*arguments)
    assert ending.code == 2
    assert ending.out == ""
    assert "Usage:" in ending.err


def test_a_usage_mistake_is_one_json_object_too(call):
    ending = call("plan", "--json")
    assert ending.code == 2
    assert json.loads(ending.out)["error"]["exit_code"] == 2
    assert "TARGET" in json.loads(ending.out)["error"]["what"]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.CaptureError("no", where="train.py:3", why="a loop", next_step="unroll"), 4),
        (errors.NumericsError("differs"), 5),
        (errors.VerifyError("ours"), 1),
        (errors.InvalidBudget("no budget"), 2),
    ],
)
def test_errors_are_rendered_without_a_traceback(call, fake_api, error, code):
    fake_api.error = error
    ending = call("compare", "train_me.py:factory")
    assert ending.code == code
    assert ending.out == ""
    assert f"error: {error.render()}" in ending.err
    assert "Traceback" not in ending.err
    assert "Traceback" in call("compare", "train_me.py:factory", "-vv").err


def test_an_error_is_one_json_object_on_stdout(call, fake_api):
    fake_api.error = errors.CaptureError("no", where="train.py:3", why="a loop", next_step="unroll")
    ending = call("compare", "train_me.py:factory", "--json")
    assert json.loads(ending.out) == {
        "error": {
            "class": "CaptureError",
            "exit_code": 4,
            "what": "no",
            "where": "train.py:3",
            "why": "a loop",
            "next_step": "unroll",
        }
    }


def test_an_unexpected_exception_is_a_bug(call, fake_api):
    fake_api.error = ZeroDivisionError("oops")
    ending = call("profile", "train_me.py:factory")
    assert ending.code == 1
    assert "unexpected ZeroDivisionError: oops" in ending.err
    assert "Traceback" not in ending.err
    assert "Traceback" in call("profile", "train_me.py:factory", "-v").err


def test_an_interrupt_without_a_plan(call, fake_api):
    fake_api.error = KeyboardInterrupt()
    ending = call("profile", "train_me.py:factory", "--json")
    assert ending.code == 130
    assert json.loads(ending.out)["error"]["class"] == "KeyboardInterrupt"


@pytest.mark.parametrize(
    ("arguments", "tracebacks"),
    [
        (["profile", "train_me.py:factory"], False),
        (["profile", "train_me.py:factory", "-v"], True),
        (["-v", "profile", "train_me.py:factory"], True),
        (["--verbose", "profile", "train_me.py:factory"], True),
    ],
)
def test_more_is_printed_wherever_the_option_stands(call, fake_api, arguments, tracebacks):
    fake_api.error = ZeroDivisionError("oops")
    assert ("Traceback" in call(*arguments).err) is tracebacks


def test_what_stands_before_the_command_and_behind_it_adds_up(call, fake_api):
    fake_api.error = errors.CaptureError("no")
    assert "Traceback" not in call("profile", "train_me.py:factory", "-v").err
    assert "Traceback" in call("-v", "profile", "train_me.py:factory", "-v").err


@pytest.mark.parametrize("arguments", [("-q", "plan"), ("plan", "-q")])
def test_quiet_stands_before_the_command_or_behind_it(call, fake_api, arguments):
    assert "plan saved" not in call(*arguments, "train_me.py:factory", "-o", "p.json").err
