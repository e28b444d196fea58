"""Cache files: where they are, and that damage and company do no harm."""

import logging
import os
import random
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from neaptide.cost import cache
from neaptide.cost.cache import OpCostCache
from together import together

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


def run_sql(path, *statements):
    connection = sqlite3.connect(path)
    with connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


def put_aside_taken(path):
    path.write_bytes(b"no database " * 500)
    path.with_name(path.name + ".damaged").mkdir()
    (path.with_name(path.name + ".damaged") / "kept").touch()


VERSION = f"PRAGMA user_version = {cache.SCHEMA_VERSION}"
# What stands in the place of the file, and whether the file is started anew there.
DAMAGE = {
    "a folder": (lambda path: path.mkdir(), False),
    "a pipe": (os.mkfifo, False),
    "a device": (lambda path: path.symlink_to("/dev/zero"), False),
    "a link that leads nowhere": (lambda path: path.symlink_to(path.parent / "no" / "where"), False),
    "nothing": (lambda path: path.touch(), True),
    "a page of zeros": (lambda path: path.write_bytes(bytes(4096)), True),
    "no database": (lambda path: path.write_bytes(b"no database " * 500), True),
    "no database, and a folder in the way of setting it aside": (put_aside_taken, False),
    "other columns": (lambda path: run_sql(path, "CREATE TABLE op_costs (a, b)", VERSION), True),
    "a column too many": (
        lambda path: run_sql(path, "CREATE TABLE op_costs (key PRIMARY KEY, value, more NOT NULL)", VERSION),
        True,
    ),
    "a view": (
        lambda path: run_sql(path, "CREATE VIEW op_costs AS SELECT 1 AS key, 2 AS value", VERSION),
        True,
    ),
    "no table": (lambda path: run_sql(path, VERSION), True),
    "the table of another schema": (lambda path: run_sql(path, "CREATE VIEW op_costs AS SELECT 1"), True),
}


@together("what", DAMAGE)
def test_whatever_is_in_the_place_of_the_file_costs_a_new_measurement_and_no_more(tmp_path, caplog, what):
    path = tmp_path / "costs"
    make, starts_anew = DAMAGE[what]
    make(path)
    with caplog.at_level(logging.WARNING), OpCostCache(path) as store:
        assert store.get_many(["k"]) == {}
        store.put_many({"k": {"v": 1}})
        assert store.get_many(["k"]) == ({"k": {"v": 1}} if starts_anew else {})
    if not starts_anew:
        assert "NEAPTIDE_CACHE_DIR" in caplog.records[-1].message
    assert all("\n" not in record.message for record in caplog.records)
    assert len(caplog.records) <= 2


@together(
    "value",
    ["1", "1.5", "NULL", "x'00ff'", "'no json'", "'[1]'", "CAST(x'fffe22' AS TEXT)"],
)
def test_a_value_of_another_type_is_none(tmp_path, caplog, value):
    path = tmp_path / "costs"
    run_sql(
        path,
        "CREATE TABLE op_costs (key PRIMARY KEY, value)",
        VERSION,
        f"INSERT INTO op_costs VALUES ('k', {value})",
    )
    with caplog.at_level(logging.WARNING), OpCostCache(path) as store:
        assert store.get_many(["k", "other"]) == {}
        store.put_many({"k": {"v": 2}})
        assert store.get_many(["k"]) == {"k": {"v": 2}}
    assert [record.message for record in caplog.records] == [
        f"1 entries of the cost cache {path} are damaged; measuring again"
    ]


@together("seed", range(8))
def test_flipped_bits_never_do_harm(tmp_path, seed):
    path = tmp_path / "costs"
    values = {f"key {i}": {"v": i, "text": "x" * i} for i in range(60)}
    with OpCostCache(path) as store:
        store.put_many(values)
    rng = random.Random(seed)
    body = bytearray(path.read_bytes())
    for _ in range(rng.choice((1, 3, 40, 400))):
        body[rng.randrange(len(body))] ^= 1 << rng.randrange(8)
    path.write_bytes(body[: rng.choice((len(body), rng.randrange(len(body))))])
    with OpCostCache(path) as store:
        assert all(isinstance(value, dict) for value in store.get_many(values).values())
        store.put_many(values)
        assert store.get_many(values).keys() <= values.keys()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_folder_without_permission_keeps_nothing(tmp_path, caplog):
    with OpCostCache(tmp_path / "costs") as store:
        store.put_many({"k": {"v": 1}})
    for mode in (0o500, 0):
        tmp_path.chmod(mode)
        try:
            with caplog.at_level(logging.WARNING), OpCostCache(tmp_path / "costs") as store:
                store.put_many({"new": {"v": 1}})
                assert store.get_many(["new"]) == {}
        finally:
            tmp_path.chmod(0o700)
    assert "NEAPTIDE_CACHE_DIR" in caplog.text


def test_full_disk_keeps_nothing_more(tmp_path, caplog):
    path = tmp_path / "costs"
    with caplog.at_level(logging.WARNING), OpCostCache(path) as store:
        store.put_many({"k": {"v": 1}})
        # SQLite answers "database or disk is full" beyond its own limit too.
        store._connection.execute("PRAGMA max_page_count = 4")
        store.put_many({f"{i}": {"v": "x" * 1000} for i in range(100)})
        store.put_many({"more": {"v": 1}})
        assert store.get_many(["more"]) == {}
    assert [("full" in record.message) for record in caplog.records] == [True]
    with OpCostCache(path) as store:
        assert store.get_many(["k"]) == {"k": {"v": 1}}


def test_directory_of_a_user_that_is_not_there(monkeypatch):
    monkeypatch.setenv("NEAPTIDE_CACHE_DIR", "~no-such-user/cache")
    assert cache.cache_dir() == Path("~no-such-user/cache")


@pytest.mark.parametrize("begins", [b"", b"no database " * 500], ids=["new", "damaged"])
def test_two_processes_write_at_once(tmp_path, begins):
    path = tmp_path / "costs"
    path.write_bytes(begins)
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
        assert complaints == "" or (begins and "Traceback" not in complaints)
    with OpCostCache(path) as store:
        keys = [f"{name}/{i}" for name in names for i in range(60)]
        # Whoever finds the damage second may lose what the first wrote in that moment, and no more than that.
        assert len(store.get_many(keys)) >= (100 if begins else 120)
        assert store.get_many(["shared"])["shared"]["i"] == 59


def test_a_file_that_a_hung_process_holds_costs_seconds_not_minutes(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(cache, "_BUSY_TIMEOUT_S", 0.05)
    path = tmp_path / "costs"
    with OpCostCache(path) as store:
        store.put_many({"known": {"seconds": 1}})
        hung = sqlite3.connect(path)
        hung.execute("BEGIN EXCLUSIVE")
        waited = []
        connect = sqlite3.connect
        monkeypatch.setattr(
            sqlite3,
            "connect",
            lambda *args, timeout: waited.append(timeout) or connect(*args, timeout=timeout),
        )
        second = OpCostCache(path)
        assert second.get_many(["known"]) == {}
        # Together no longer than one of them may take.
        assert all(timeout <= 0.05 for timeout in waited)
        assert "not kept" in caplog.text
        hung.close()
