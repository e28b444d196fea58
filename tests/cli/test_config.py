"""Settings from three places."""

import inspect
import json
from dataclasses import MISSING, fields

import pytest

from neaptide.ask import Ask
from neaptide.cli.config import resolve
from neaptide.errors import InvalidBudget, UsageError
from neaptide.options import PlanOptions
from neaptide.settings import TABLE, Settings
from support.together import together

# In Python a comparison verifies unless it is told not to, as the command does; a run does not.
NOT_OF_THE_API = {"verify", "dynamic", "at"}

VALUES = {
    "peak": ("60%", "60%"),
    "latency": ("+10%", "+10%"),
    "host": ("8GiB", "8GiB"),
    "state_between_steps": ("true", True),
    "host_rate": ("1GB", "1GB"),
    "host_folder": ("/scratch", "/scratch"),
    "device": ("h100", "h100"),
    "time_limit": ("60s", "60s"),
    "work_limit": ("9", 9),
    "workers": ("2", 2),
    "seed": ("3", 3),
    "trials": ("3", 3),
    "strategy": ("early_updates", "early_updates"),
    "also": ("a, b", ("a", "b")),
    "method": ("lpmf, exact", ("lpmf", "exact")),
    "points": ("12", 12),
    "repeats": ("4", 4),
    "steps": ("2", 2),
    "verify": ("yes", True),
    "strict": ("yes", True),
    "eager": ("off", False),
    "atomic": ("true", True),
    "allow_nondeterministic": ("true", True),
    "numerics": ("close", "close"),
    "lowering": ("inductor", "inductor"),
    "checkpoints": ("undo", "undo"),
    "in_place": ("false", False),
    "rewrite": ("a, b", ("a", "b")),
    "refresh": ("yes", True),
    "dynamic": ("batch:0=2..64, 1=16..", ("batch:0=2..64", "1=16..")),
    "at": ("8x512, 4x16", ("8x512", "4x16")),
    "fit": ("24GiB", "24GiB"),
    "arena": ("yes", True),
    "arena_copies": ("none", "none"),
    "capacity": ("1MiB", "1MiB"),
    "alignment": ("64", 64),
    "workspace": ("yes", True),
}


def test_defaults_are_those_of_the_api():
    for wanted in fields(Ask):
        if wanted.name in TABLE and wanted.default is not MISSING:
            assert wanted.default == TABLE[wanted.name].default, wanted.name
    api, asking = pytest.importorskip("neaptide.api"), pytest.importorskip("neaptide.api.asking")
    for function in (api.plan, api.compare, api.compile_step, api.run, api.profile):
        for name, parameter in inspect.signature(function).parameters.items():
            if name in TABLE and name not in NOT_OF_THE_API:
                assert parameter.default == TABLE[name].default, (function.__name__, name)
    assert asking.ask_of("plan", "60%", {}, PlanOptions).limits.time_s == Settings().time_limit_s


@together("name", TABLE)
def test_every_setting_can_come_from_every_place(tmp_path, name):
    text, value = VALUES[name]
    variable = "NEAPTIDE_" + name.upper()
    from_environment = resolve({}, environment={variable: text}, directory=tmp_path)
    assert getattr(from_environment.settings, name) == value
    assert from_environment.sources[name] == f"environment variable {variable}"
    written = list(value) if isinstance(value, tuple) else value
    (tmp_path / "neaptide.toml").write_text(f"{name.replace('_', '-')} = {json.dumps(written)}\n")
    from_file = resolve({}, environment={}, directory=tmp_path / "below" / "here")
    assert getattr(from_file.settings, name) == value
    assert from_file.sources[name] == str(tmp_path / "neaptide.toml")
    from_argument = resolve({name: text}, environment={}, directory=tmp_path)
    assert from_argument.settings == from_file.settings
    assert from_argument.sources[name].startswith("argument --")


def test_arguments_win_over_environment_over_file(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.neaptide]\nseed = 1\nsteps = 1\nrepeats = 1\n")
    found = resolve(
        {"seed": "3", "steps": None},
        environment={"NEAPTIDE_SEED": "2", "NEAPTIDE_STEPS": "2"},
        directory=tmp_path,
    )
    assert (found.settings.seed, found.settings.steps, found.settings.repeats) == (3, 2, 1)


def test_the_nearest_file_counts_and_a_pyproject_without_our_table_does_not(tmp_path):
    (tmp_path / "neaptide.toml").write_text("seed = 1\n")
    below = tmp_path / "below"
    below.mkdir()
    (below / "pyproject.toml").write_text("[tool.other]\nseed = 9\n")
    assert resolve({}, environment={}, directory=below).settings.seed == 1
    (below / "pyproject.toml").write_text("[tool.neaptide]\nseed = 2\n")
    assert resolve({}, environment={}, directory=below).settings.seed == 2
    (below / "neaptide.toml").write_text("seed = 3\n")
    assert resolve({}, environment={}, directory=below).settings.seed == 3


@together(
    ("name", "value"),
    [
        ("peak", "150%"),
        ("peak", "nan"),
        ("latency", "10%"),
        ("time_limit", "60"),
        ("time_limit", "-1s"),
        ("seed", "one"),
        ("seed", "-1"),
        ("repeats", "0"),
        ("work_limit", "1.5"),
        ("device", " "),
        ("verify", "maybe"),
    ],
)
def test_a_wrong_value_names_the_place_it_stands_in(tmp_path, name, value):
    variable = "NEAPTIDE_" + name.upper()
    with pytest.raises(UsageError) as caught:
        resolve({}, environment={variable: value}, directory=tmp_path)
    assert caught.value.where == variable
    with pytest.raises(UsageError) as caught:
        resolve({name: value}, environment={}, directory=tmp_path)
    assert caught.value.where == "--" + name.replace("_", "-")
    if name == "peak":
        assert isinstance(caught.value, InvalidBudget)


def test_numbers_in_a_file_are_seconds_and_bytes(tmp_path):
    (tmp_path / "neaptide.toml").write_text("time-limit = 60\nlatency = 0.5\npeak = 4096\n")
    settings = resolve({}, environment={}, directory=tmp_path).settings
    assert (settings.time_limit_s, settings.latency, settings.peak) == (60.0, "0.5s", "4096")


def test_an_unknown_setting_and_a_broken_file(tmp_path):
    path = tmp_path / "neaptide.toml"
    path.write_text("peek = '60%'\n")
    with pytest.raises(UsageError, match="did you mean peak"):
        resolve({}, environment={}, directory=tmp_path)
    path.write_text("peak = \n")
    with pytest.raises(UsageError, match="cannot be read"):
        resolve({}, environment={}, directory=tmp_path)


def test_print_config_shows_values_and_places(call, monkeypatch, tmp_path):
    (tmp_path / "neaptide.toml").write_text("seed = 4\nalso = ['a', 'b']\n")
    monkeypatch.setenv("NEAPTIDE_PEAK", "60%")
    monkeypatch.setenv("NEAPTIDE_PEEK", "60%")
    ending = call("compare", "--print-config", "--repeats", "2")
    assert ending.code == 0
    rows = {line.split("|")[1].strip(): line for line in ending.out.splitlines()}
    assert "60%" in rows["peak"]
    assert "environment variable NEAPTIDE_PEAK" in rows["peak"]
    assert "neaptide.toml" in rows["seed"]
    assert "a, b" in rows["also"]
    assert "argument --repeats" in rows["repeats"]
    assert "default" in rows["eager"]
    assert "20s" in rows["time_limit"], "the default that is in force"
    assert "nothing reads the environment variable NEAPTIDE_PEEK" in ending.err
    content = json.loads(call("compare", "--print-config", "--json").out)
    limited = call("compare", "--print-config", "--json", "--work-limit", "9").out
    assert json.loads(limited)["time_limit"] == {"value": None, "source": "default"}
    assert content["peak"] == {"value": "60%", "source": "environment variable NEAPTIDE_PEAK"}


def test_a_wrong_file_ends_with_usage(call, tmp_path):
    (tmp_path / "neaptide.toml").write_text("seed = 'x'\n")
    assert call("compare", "train_me.py:factory").code == 2
