"""Cache files: where they are, and that damage and company do no harm."""

import logging
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from neaptide.cost import cache
from neaptide.cost.cache import OpCostCache
from neaptide.errors import UsageError

WRITER = """
import sys
from pathlib import Path
from neaptide.cost.cache import OpCostCache

path, name = Path(sys.argv[1]), sys.argv[2]
sys.stdin.readline()
for i in range(60):
    # A new connection each time: opening is the part where two processes can collide.
    with OpCostCache(path) as store:
        store.put_many({f"{name}/{i}": {"i": i}, "shared": {"name": name, "i": i}})
"""


def test_directory_follows_the_environment(monkeypatch):
    monkeypatch.setenv("NEAPTIDE_CACHE_DIR", "/somewhere/own")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere/xdg")
    assert cache.cache_dir() == Path("/somewhere/own")
    monkeypatch.delenv("NEAPTIDE_CACHE_DIR")
    assert cache.cache_dir() == Path("/somewhere/xdg/neaptide")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
    assert cache.cache_dir() == Path.home() / ".cache" / "neaptide"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache.cache_dir() == Path.home() / ".cache" / "neaptide"


def test_atomic_write_replaces_and_leaves_nothing_behind(tmp_path):
    target = tmp_path / "made" / "on the way" / "file.json"
    cache.write_atomic(target, "one")
    cache.write_atomic(target, "two")
    assert target.read_text() == "two"
    assert list(target.parent.iterdir()) == [target]


def test_failed_atomic_write_keeps_the_old_file(tmp_path):
    target = tmp_path / "file.json"
    cache.write_atomic(target, "old")
    with pytest.raises(UnicodeEncodeError):
        cache.write_atomic(target, "\ud800")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_values_come_back_after_reopening(tmp_path):
    values = {f"key {i}": {"seconds": i / 3, "workspace_bytes": i} for i in range(1200)}
    with OpCostCache(tmp_path / "costs") as store:
        store.put_many(values)
        store.put_many({})
    with OpCostCache(tmp_path / "costs") as store:
        assert store.get_many(values) == values
        assert store.get_many(["key 7", "absent", "key 7"]) == {"key 7": values["key 7"]}
        assert store.get_many([]) == {}
        store.put_many({"key 7": {"seconds": 1}})
        assert store.get_many(["key 7"]) == {"key 7": {"seconds": 1}}


def test_default_place_is_the_cache_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("NEAPTIDE_CACHE_DIR", str(tmp_path / "dir"))
    with OpCostCache() as store:
        store.put_many({"k": {"v": 1}})
        assert store.path.parent == tmp_path / "dir"
        assert store.path.exists()


def test_damaged_file_is_set_aside_with_a_warning(tmp_path, caplog):
    path = tmp_path / "costs"
    path.write_bytes(b"this was never a database" * 100)
    with caplog.at_level(logging.WARNING), OpCostCache(path) as store:
        store.put_many({"k": {"v": 1}})
        assert store.get_many(["k"]) == {"k": {"v": 1}}
    assert "damaged" in caplog.text
    assert (tmp_path / "costs.damaged").exists()


def test_damage_found_while_reading_starts_a_new_file(tmp_path, caplog):
    path = tmp_path / "costs"
    with OpCostCache(path) as store:
        store.put_many({f"key {i}": {"text": "x" * 100} for i in range(500)})
    body = bytearray(path.read_bytes())
    body[4096:] = b"\xff" * (len(body) - 4096)
    path.write_bytes(body)
    with caplog.at_level(logging.WARNING), OpCostCache(path) as store:
        assert store.get_many(["key 1"]) == {}
        store.put_many({"key 1": {"v": 2}})
        assert store.get_many(["key 1"]) == {"key 1": {"v": 2}}
    assert "damaged" in caplog.text


def test_other_schema_version_is_emptied(tmp_path):
    path = tmp_path / "costs"
    with OpCostCache(path) as store:
        store.put_many({"k": {"v": 1}})
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 999")
    connection.close()
    with OpCostCache(path) as store:
        assert store.get_many(["k"]) == {}


def test_place_that_cannot_be_written_is_a_usage_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UsageError, match="NEAPTIDE_CACHE_DIR"):
        OpCostCache(tmp_path / "file" / "costs")


def test_two_processes_write_at_once(tmp_path):
    path = tmp_path / "costs"
    names = ("left", "right")
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), name],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in names
    ]
    for writer in writers:
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        _, complaints = writer.communicate(timeout=60)
        assert writer.returncode == 0, complaints
        assert complaints == ""
    with OpCostCache(path) as store:
        keys = [f"{name}/{i}" for name in names for i in range(60)]
        assert len(store.get_many(keys)) == 120
        assert store.get_many(["shared"])["shared"]["i"] == 59
