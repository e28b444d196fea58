"""doctor and devices."""

import json

import msgspec
import pytest

from neaptide.cli import machine
from neaptide.cost.cache import FILE_NAME, OpCostCache
from neaptide.cost.devices import CALIBRATION
from neaptide.cost.presets import PRESETS, get_device
from support.together import together

VERSIONS = {
    "torch": "2.13.0+cpu",
    "transformers": "5.1",
    "numpy": "2.4",
    "scipy": "1.17",
    "msgspec": "0.22",
    "click": "8.5",
    "rich": "15.0",
}


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """A made-up installation with a cache of its own."""
    monkeypatch.setenv("NEAPTIDE_CACHE_DIR", str(tmp_path / "cache"))
    versions = dict(VERSIONS)
    monkeypatch.setattr(machine, "_version", versions.get)
    monkeypatch.setattr(machine, "_threads", list)
    return versions


def findings(call):
    ending = call("doctor", "--json")
    content = json.loads(ending.out)
    return ending.code, {finding["name"]: finding for finding in content["findings"]}


def test_a_good_installation(call, installed):
    code, found = findings(call)
    assert code == 0
    assert found["torch"]["status"] == "ok"
    assert found["matplotlib"] == {
        "name": "matplotlib",
        "status": "missing",
        "detail": "for: figures",
        "fix": 'pip install "matplotlib>=3.8"',
    }
    text = call("doctor").out
    assert "| torch        | ok" in text
    assert text.endswith("No problems.\n")


@together(
    ("package", "version", "status", "code"),
    [
        ("torch", "2.10.1", "problem", 4),
        ("torch", "2.11.0", "ok", 0),
        ("torch", "2.15.0", "ok", 0),
        ("torch", "2.16.0.dev1", "warning", 0),
        ("torch", None, "missing", 0),
        ("transformers", "4.57", "warning", 0),
        ("numpy", None, "problem", 4),
    ],
)
def test_versions(call, installed, package, version, status, code):
    installed[package] = version
    ended, found = findings(call)
    assert (ended, found[package]["status"]) == (code, status)
    assert bool(found[package]["fix"]) is (status != "ok")


def test_the_cache_and_what_is_in_it(call, installed, tmp_path):
    assert findings(call)[1]["calibration"]["detail"].startswith("none yet")
    kept = OpCostCache(tmp_path / "cache" / FILE_NAME)
    kept.put_many({f"{CALIBRATION}damaged": {"device": {}}})
    assert findings(call)[1]["calibration"]["detail"].startswith("none yet")
    kept.put_many({f"{CALIBRATION}t4": {"device": msgspec.to_builtins(get_device("t4"))}})
    assert "T4" in findings(call)[1]["calibration"]["detail"]


def test_devices(call):
    text = call("devices").out
    for name in PRESETS:
        assert f"| {name} " in text
    content = json.loads(call("devices", "--json").out)
    assert [device["name"] for device in content["devices"]] == list(PRESETS)


def test_a_cache_that_is_no_folder(call, installed, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NEAPTIDE_CACHE_DIR", str(tmp_path / "file" / "cache"))
    assert findings(call)[1]["cache"]["status"] == "warning"
