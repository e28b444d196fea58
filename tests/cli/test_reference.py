"""The reference pages say what the program says."""

import inspect
import re
from pathlib import Path

import pytest

from neaptide import errors
from neaptide.cli.main import cli
from neaptide.cli.process import exit_codes
from neaptide.cli.targets import find_target
from neaptide.errors import NeaptideError
from neaptide.units import parse_size
from support.together import together

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
CLI = (REFERENCE / "cli.md").read_text(encoding="utf-8")
ERRORS = (REFERENCE / "errors.md").read_text(encoding="utf-8")
CLASSES = [
    value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, NeaptideError)
]


@together("name", sorted(cli.commands))
def test_every_option_is_listed_for_its_command(name):
    assert f"neaptide {name} " in CLI
    for param in cli.commands[name].params:
        flag = next((text for text in param.opts if text.startswith("--")), None)
        found = re.search(rf"^\* `[^`]*{flag}\b[^`]*` \((.+?)\): ", CLI, re.MULTILINE)
        assert flag is None or (found and re.search(rf"\b({name}|all)\b", found[1])), flag


def test_exit_codes():
    for code, meaning in exit_codes.MEANINGS.items():
        assert f"| {code} | {meaning} |" in CLI


@together("error", CLASSES)
def test_every_error_class_is_listed(error):
    assert f"* `{error.__name__}` ({error.exit_code}): " in ERRORS


def mistyped_factory():
    Path("train.py").write_text("def factory():\n    return print, 1\n")
    find_target("train.py:factroy")


@together(
    "make",
    [
        lambda: parse_size("20GiBB"),
        mistyped_factory,
    ],
    ids=["UsageError", "TargetError"],
)
def test_examples_are_what_is_raised(make, tmp_path):
    with pytest.raises(NeaptideError) as caught:
        make()
    assert caught.value.render().replace(str(tmp_path), "/home/me") in ERRORS
