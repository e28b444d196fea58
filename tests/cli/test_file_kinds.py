"""A file is told by its kind, and alike by every command."""

from __future__ import annotations

import json

import pytest

from neaptide.cli.main import main
from neaptide.cli.process import exit_codes
from support.together import together

PROGRAMS = ("profile", "plan", "compare")
COMMANDS = (*PROGRAMS, "explain", "order", "layout", "recompute", "sweep")
KINDS = {
    "step.graph": ({"format": "neaptide.graph/1"}, "a graph file", ("order", "layout")),
    "order.json": ({"format": "neaptide.order/1"}, "an ordering problem", ("order",)),
    "plan.json": ({"format": "neaptide.plan/2"}, "a plan file", ("explain", "layout")),
    "nodes.json": ([{"name": "a", "size": 1, "deps": []}], "a recompute instance", ("recompute", "sweep")),
}


def told(capsys, *arguments):
    assert main(arguments) == exit_codes.USAGE
    return capsys.readouterr().err


@together("suffix", ["pt2", "safetensors"])
@together("target", ["model.{}", "model.{}:factory"])
def test_a_model_of_another_kind_gets_one_answer(suffix, target, capsys):
    answers = {told(capsys, command, target.format(suffix)) for command in COMMANDS}
    assert len(answers) == 1
    (answer,) = answers
    assert f"model.{suffix} is a file of another kind" in answer
    assert "train.py:factory" in answer


@pytest.mark.parametrize("name", KINDS)
def test_a_file_of_ours_is_told_by_its_kind(name, tmp_path, capsys):
    content, kind, takers = KINDS[name]
    path = tmp_path / name
    path.write_text(json.dumps(content))
    for command in sorted({*COMMANDS} - {*takers}):
        answer = told(capsys, command, str(path))
        assert f"is {kind}, which `neaptide {command}` does not take" in answer
        assert f"neaptide {takers[0]} {path}" in answer
    main([takers[0], str(path)])  # damaged in other ways
    assert "does not take" not in capsys.readouterr().err


def test_json_of_no_kind_is_no_plan_file(tmp_path, capsys):
    path = tmp_path / "settings.json"
    path.write_text('{"lr": 0.1}')
    assert "is JSON of no kind that is known" in told(capsys, "plan", str(path), "--peak", "70%")


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("def build():\n    return step, 1\n\ndef other():\n    return 2\n", "build"),
        ("def step(batch):\n    return batch\n", "NAME"),
        ("def broken(:\n", "NAME"),
    ],
)
def test_what_is_advised_for_a_program_names_its_factory(source, name, tmp_path, capsys):
    path = tmp_path / "train.py"
    path.write_text(source)
    assert f"neaptide plan {path}:{name} --peak 60%" in told(capsys, "explain", str(path))
