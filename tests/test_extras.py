from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import neaptide
from neaptide.errors import REQUIRED, UsageError, how_to_install
from support.together import together

ROOT = Path(__file__).parent.parent


def test_extras_are_those_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = project["optional-dependencies"]
    assert {name: tuple(declared[name]) for name in REQUIRED} == REQUIRED
    assert set(declared) - set(REQUIRED) == {"dev"}


def test_no_advice_names_a_package_that_no_index_has():
    advised = [
        *(ROOT / "src").rglob("*.py"),
        *(ROOT / "docs" / "reference").rglob("*.md"),
        *(ROOT / "docs" / "how-to").rglob("*.md"),
    ]
    found = [str(path) for path in advised if re.search(r"pip install[^\n]*neaptide", path.read_text())]
    assert found == []
    assert how_to_install("plots") == 'pip install "matplotlib>=3.8"'


def test_commands_of_the_pages_name_a_factory():
    command = re.compile(r"neaptide (?:profile|plan|run|compare|sweep|order) [\w./-]+\.py(?!:|\w)")
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    assert [match[0] for page in pages for match in command.finditer(page.read_text())] == []


@together(
    ("function", "options"),
    [
        ("compare", {"budget": "70%"}),
        ("compare_shapes", {"budget": "70%", "dynamic": {"x": {0: (2, 4)}}}),
        ("plan_by_trials", {"budget": "70%", "trials": 2}),
    ],
)
def test_a_step_and_its_batch_are_refused_in_a_sentence_where_a_factory_is_wanted(function, options):
    def step(_x):
        raise AssertionError("run")

    with pytest.raises(UsageError, match=f"{function} takes a factory, not a step and its batch") as caught:
        getattr(neaptide, function)(step, object(), **options)
    assert "def factory()" in caught.value.next_step
