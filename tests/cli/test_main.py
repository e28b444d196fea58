"""Endings: exit codes, what stands on which stream, laziness."""

import json
import subprocess
import sys

from neaptide import errors
from neaptide.cli.process import exit_codes
from support.together import together

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


def test_exit_codes_are_those_of_the_error_classes():
    def classes(base):
        return [base, *(c for sub in base.__subclasses__() for c in classes(sub))]

    assert {c.exit_code for c in classes(errors.NeaptideError)} <= set(exit_codes.MEANINGS)


@together(
    "arguments",
    [["plan"], ["plan", "train_me.py:factory", "--no-such"], ["nothing"], ["run", "train_me.py:factory"]],
)
def test_wrong_arguments_are_usage(call, arguments):
    ending = call(*arguments)
    assert ending.code == 2
    assert ending.out == ""
    assert "Usage:" in ending.err
    told = json.loads(call("plan", "--json").out)["error"]
    assert told["exit_code"] == 2
    assert "TARGET" in told["what"]


TARGET = "train_me.py:factory"
LOOP = errors.CaptureError("no", where="train.py:3", why="a loop", next_step="unroll")


@together(
    ("error", "code", "told"),
    [
        (LOOP, 4, f"error: {LOOP.render()}"),
        (errors.NumericsError("differs"), 5, "error: differs"),
        (errors.VerifyError("ours"), 1, "error: ours"),
        (errors.InvalidBudget("no budget"), 2, "error: no budget"),
        (ZeroDivisionError("oops"), 1, "unexpected ZeroDivisionError: oops"),
    ],
)
def test_errors_are_rendered_without_a_traceback(call, fake_api, error, code, told):
    fake_api.error = error
    ending = call("compare", TARGET)
    assert ending.code == code
    assert ending.out == ""
    assert told in ending.err
    assert "Traceback" not in ending.err
    assert "Traceback" in call("compare", TARGET, "-vv").err


def test_an_error_is_one_json_object_on_stdout(call, fake_api):
    fake_api.error = LOOP
    assert json.loads(call("compare", TARGET, "--json").out) == {
        "error": {
            "class": "CaptureError",
            "exit_code": 4,
            "what": "no",
            "where": "train.py:3",
            "why": "a loop",
            "next_step": "unroll",
        }
    }
    fake_api.error = KeyboardInterrupt()
    ending = call("profile", TARGET, "--json")
    assert ending.code == 130
    assert json.loads(ending.out)["error"]["class"] == "KeyboardInterrupt"


@together(
    ("arguments", "error", "tracebacks"),
    [
        (["profile", TARGET], ZeroDivisionError("oops"), False),
        (["profile", TARGET, "-v"], ZeroDivisionError("oops"), True),
        (["-v", "profile", TARGET], ZeroDivisionError("oops"), True),
        (["--verbose", "profile", TARGET], ZeroDivisionError("oops"), True),
        (["profile", TARGET, "-v"], errors.CaptureError("no"), False),
        (["-v", "profile", TARGET, "-v"], errors.CaptureError("no"), True),
    ],
)
def test_how_much_is_printed_adds_up_wherever_the_option_stands(call, fake_api, arguments, error, tracebacks):
    for quiet in (("-q", "plan"), ("plan", "-q")):
        fake_api.error = None
        assert "plan saved" not in call(*quiet, TARGET, "-o", "p.json").err
    fake_api.error = error
    assert ("Traceback" in call(*arguments).err) is tracebacks


def test_version(call):
    ending = call("--version")
    assert (ending.code, ending.out.split()[0]) == (0, "neaptide,")
