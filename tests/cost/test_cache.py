"""The file of measured costs: where it is, and that damage and company do no harm."""

import errno
import logging
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from neaptide.cost import cache
from neaptide.cost.cache import OpCostCache
from support.together import together

WRITER = """
import sys
from pathlib import Path
from neaptide.cost.cache import OpCostCache

sys.stdin.readline()
store = OpCostCache(Path(sys.argv[1]))
for i in range(300):
    store.put_many({f"{sys.argv[2]}/{i}": {"i": i}, "shared": {"i": i}})
"""


@together(
    ("own", "shared", "expected"),
    [
        ("/somewhere/own", "/somewhere/xdg", Path("/somewhere/own")),
        ("~no-such-user/cache", None, Path("~no-such-user/cache")),
        (None, "/somewhere/xdg", Path("/somewhere/xdg/neaptide")),
        (None, "relative/is/ignored", Path.home() / ".cache" / "neaptide"),
        (None, None, Path.home() / ".cache" / "neaptide"),
    ],
)
def test_directory_follows_the_environment(monkeypatch, own, shared, expected):
    for name, value in (("NEAPTIDE_CACHE_DIR", own), ("XDG_CACHE_HOME", shared)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    assert cache.cache_dir() == expected


def test_values_come_back_after_reopening_and_to_other_readers(tmp_path):
    path = tmp_path / "costs"
    values = {f"key {i}": {"seconds": i / 3, "workspace_bytes": i} for i in range(1200)}
    other, store = OpCostCache(path), OpCostCache(path)
    assert other.get_many(values) == {}
    store.put_many(values)
    store.put_many({})
    assert other.get_many(values) == OpCostCache(path).get_many(values) == values
    assert store.get_many(["key 7", "absent", "key 7"]) == {"key 7": values["key 7"]}
    store.put_many({"key 7": {"seconds": 1}})
    assert other.get_many(["key 7"]) == OpCostCache(path).get_many(["key 7"]) == {"key 7": {"seconds": 1}}


# What stands in the place of the file, and whether costs are kept there all the same.
IN_PLACE = {
    "a folder": (lambda path: path.mkdir(), False),
    "a pipe": (os.mkfifo, False),
    "a device": (lambda path: path.symlink_to("/dev/zero"), False),
    "a link that leads nowhere": (lambda path: path.symlink_to(path.parent / "no" / "where"), False),
    "nothing": (lambda path: path.touch(), True),
    "a page of zeros": (lambda path: path.write_bytes(bytes(4096)), True),
    "a line that was cut off": (lambda path: path.write_bytes(b'{"key": "k", "value": {"v"'), True),
    "no UTF-8": (lambda path: path.write_bytes(b'{"key": "k", "value": {"v": "\xff"}}\n'), True),
    "nested too deeply": (lambda path: path.write_bytes(b'{"key":"k","value":' + b"[" * 10**5 + b"\n"), True),
    **{
        f"a value that is {value}": (lambda path, v=value: path.write_text(f'{{"key": "k", "value": {v}}}\n'), True)
        for value in ("1", "null", "[1]", '"text"')
    },
}  # fmt: skip


@together("what", IN_PLACE)
def test_whatever_is_in_the_place_of_the_file_costs_a_new_measurement_and_no_more(tmp_path, caplog, what):
    path = tmp_path / "costs"
    make, is_kept = IN_PLACE[what]
    make(path)
    with caplog.at_level(logging.WARNING):
        store = OpCostCache(path)
        assert store.get_many(["k"]) == {}
        store.put_many({"k": {"v": 1}})
        expected = {"k": {"v": 1}} if is_kept else {}
        assert store.get_many(["k"]) == OpCostCache(path).get_many(["k"]) == expected
    assert all("\n" not in record.message for record in caplog.records)
    told = {record.message for record in caplog.records}
    assert len(told) <= 1
    assert is_kept or "NEAPTIDE_CACHE_DIR" in told.pop()


@together("seed", range(8))
def test_flipped_bits_never_do_harm(tmp_path, seed):
    path = tmp_path / "costs"
    values = {f"key {i}": {"v": i, "text": "x" * i} for i in range(60)}
    OpCostCache(path).put_many(values)
    rng = random.Random(seed)
    body = bytearray(path.read_bytes())
    for _ in range(rng.choice((1, 3, 40, 400))):
        body[rng.randrange(len(body))] ^= 1 << rng.randrange(8)
    path.write_bytes(body[: rng.choice((len(body), rng.randrange(len(body))))])
    store = OpCostCache(path)
    assert all(isinstance(value, dict) for value in store.get_many(values).values())
    store.put_many(values)
    assert store.get_many(values) == values


@pytest.mark.parametrize("what", ["open", "write"])
def test_where_nothing_can_be_written_what_is_there_is_read_after_one_warning(
    tmp_path, caplog, monkeypatch, what
):
    path = tmp_path / "costs"
    store = OpCostCache(path)
    store.put_many({"k": {"v": 1}})
    assert store.get_many(["k"])
    opened = os.open

    def refused(name, flags, mode=0o777):
        if what == "write":
            return opened("/dev/full", os.O_WRONLY)
        raise PermissionError(errno.EACCES, "no permission")

    with caplog.at_level(logging.WARNING), monkeypatch.context() as patch:
        patch.setattr(cache.os, "open", refused)
        store.put_many({"more": {"v": 1}})
        store.put_many({"even more": {"v": 1}})
    assert store.get_many(["k", "more", "even more"]) == {"k": {"v": 1}}
    assert ["not kept" in record.message for record in caplog.records] == [True]


def test_two_processes_write_at_once(tmp_path):
    path = tmp_path / "costs"
    path.write_bytes(b"no costs " * 500)
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), name],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in ("left", "right")
    ]
    for writer in writers:
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        _, complaints = writer.communicate(timeout=60)
        assert (writer.returncode, complaints) == (0, "")
    keys = [f"{name}/{i}" for name in ("left", "right") for i in range(300)]
    store = OpCostCache(path)
    assert len(store.get_many(keys)) == 600
    assert store.get_many(["shared"])["shared"]["i"] == 299
