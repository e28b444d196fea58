"""Streams that are full, closed or of another encoding: a documented exit code, a sentence where one can be said."""

import json
import subprocess
import sys

import pytest

from support.together import together

FULL = "/dev/full"


def shell(command, **options):
    program = f"{sys.executable} -m neaptide"
    return subprocess.run(
        ["bash", "-c", command.replace("neaptide", program)],
        capture_output=True,
        text=True,
        check=False,
        **options,
    )


@together(
    "command",
    ["devices", "devices --json", "--help", "plan --print-config", "--version"],
    quick=("devices --json", "--help"),
)
def test_a_full_stdout_is_said(command):
    ended = shell(f"neaptide {command} > {FULL}")
    assert ended.returncode == 2
    assert "error: the result cannot be printed" in ended.stderr
    assert "No space left" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert "Exception ignored" not in ended.stderr


@together("command", ["devices", "devices --json", "--help"], quick=("devices --json",))
@together("reader", ["head -1", "true"])
def test_a_reader_that_stops_reading_is_no_error(command, reader):
    ended = shell(f"neaptide {command} | {reader}; echo ended ${{PIPESTATUS[0]}}")
    assert ended.stdout.splitlines()[-1] == "ended 0"
    assert ended.stderr == ""


@together("closed", [">&-", "2>&-", f"2>{FULL}", "<&-"], quick=(">&-", "2>&-"))
def test_a_closed_stream_changes_nothing_else(closed):
    whole = json.loads(shell("neaptide devices --json").stdout)
    ended = shell(f"neaptide devices --json {closed}")
    assert ended.returncode == 0
    assert ended.stderr == ""
    if closed != ">&-":
        assert json.loads(ended.stdout) == whole


def test_letters_that_the_output_does_not_have(tmp_path):
    (tmp_path / "\u6f6e.json").write_text("{}")
    ended = shell(
        "PYTHONIOENCODING=ascii neaptide explain \u6f6e.json; neaptide order \u6f6e.json", cwd=tmp_path
    )
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("name", ["", "nowhere/p.json", "x" * 300, "/dev/null/p.json", "/proc/p.json"])
def test_an_output_that_cannot_be_written_is_told_before_the_search(call, fake_api, name):
    ending = call("plan", "train_me.py:factory", "-o", name)
    assert ending.code == 2
    assert "error: the result cannot be written" in ending.err
    assert fake_api.calls == []


@pytest.mark.parametrize("closed", [pytest.param("2>&-", marks=pytest.mark.slow), f"2>{FULL}"])
def test_an_error_without_stderr_keeps_its_code_and_stdout(closed):
    ended = shell(f"neaptide explain nothing.json {closed}")
    assert (ended.returncode, ended.stdout) == (2, "")
    ended = shell(f"neaptide explain --json nothing.json {closed}")
    assert json.loads(ended.stdout)["error"]["exit_code"] == 2
