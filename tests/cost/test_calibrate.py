"""Calibration: what it gives, and that it is kept and shared."""

import logging

import pytest

# ruff: noqa: E402  (what follows needs torch, which is an extra)
torch = pytest.importorskip("torch")

from neaptide.cost import calibrate, host
from neaptide.cost.devices import Device
from neaptide.cost.roofline import seconds
from together import together


@pytest.fixture(scope="module")
def measured():
    return calibrate.measure()


def test_measured_device_is_usable(measured):
    assert measured.name == "this-machine"
    assert measured.kind == "cpu"
    assert set(measured.flops_per_s) == {"float32", "bfloat16"}
    # Wide bounds that no computer running this misses: a megaflop and an exaflop per second.
    assert all(1e6 < rate < 1e18 for rate in measured.flops_per_s.values())
    assert 1e-8 < measured.launch_s < 1e-2
    assert measured.main_space.capacity_bytes == host.memory_capacity_bytes()
    assert torch.__version__ in measured.source
    assert Device.from_json(measured.to_json()) == measured
    assert seconds(measured, flops=1e9, bytes_moved=1e6, dtype="float32") > measured.launch_s


def test_result_is_kept_and_read_back(measured, tmp_path, monkeypatch):
    monkeypatch.setattr(calibrate, "measure", lambda: measured)
    first = calibrate.this_machine(directory=tmp_path)
    monkeypatch.setattr(calibrate, "measure", lambda: pytest.fail("measured again"))
    assert calibrate.this_machine(directory=tmp_path) == first == measured


def test_refresh_and_other_thread_count_measure_again(measured, tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(calibrate, "measure", lambda: calls.append(1) or measured)
    calibrate.this_machine(directory=tmp_path)
    calibrate.this_machine(directory=tmp_path, refresh=True)
    assert len(calls) == 2
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1000)
    calibrate.this_machine(directory=tmp_path)
    assert len(calls) == 3


def edited(find, put):
    def damage(path):
        text = path.read_text()
        assert find in text
        path.write_text(text.replace(find, put, 1))

    return damage


def replaced_by_folder(path):
    path.unlink()
    path.mkdir()


def replaced_by_device(path):
    path.unlink()
    path.symlink_to("/dev/zero")


DAMAGE = {
    "cut off": lambda path: path.write_text("{"),
    "empty": lambda path: path.write_bytes(b""),
    "no UTF-8": lambda path: path.write_bytes(b"\xff\xfe{\x00}\x00"),
    "no object": lambda path: path.write_text("[1]"),
    "deep": lambda path: path.write_text("[" * 100_000),
    "a folder": replaced_by_folder,
    "a device": replaced_by_device,
    "huge": edited('"capacity_bytes": ', '"capacity_bytes": ' + "9" * 400),
    "huge reserve": edited('"reserved_bytes": ', '"reserved_bytes": ' + "9" * 400),
    "huge float": edited('"launch_s": ', '"launch_s": 1e400, "was": '),
    "another type": edited('"kind": "cpu"', '"kind": {}'),
    "a text for a number": edited('"reserved_bytes": 0', '"reserved_bytes": "0"'),
}


@together("what", DAMAGE)
def test_damaged_file_is_measured_again_with_a_warning(measured, tmp_path, monkeypatch, caplog, what):
    monkeypatch.setattr(calibrate, "measure", lambda: measured)
    calibrate.this_machine(directory=tmp_path)
    (kept,) = tmp_path.iterdir()
    DAMAGE[what](kept)
    with caplog.at_level(logging.WARNING):
        assert calibrate.this_machine(directory=tmp_path) == measured
    assert "not readable" in caplog.records[0].message
    assert all("\n" not in record.message for record in caplog.records)


def test_folder_below_a_file_is_measured_with_a_warning(measured, tmp_path, monkeypatch, caplog):
    (tmp_path / "file").touch()
    monkeypatch.setattr(calibrate, "measure", lambda: measured)
    with caplog.at_level(logging.WARNING):
        assert calibrate.this_machine(directory=tmp_path / "file" / "cache") == measured
    assert [record.message.split()[:6] for record in caplog.records] == [
        ["the", "calibration", "could", "not", "be", "kept"]
    ]


def test_container_limit_is_used_when_lower(tmp_path, monkeypatch):
    limit = tmp_path / "memory.max"
    limit.write_text("67108864\n")
    monkeypatch.setattr(host, "_CGROUP_LIMITS", (limit, tmp_path / "absent"))
    assert host.memory_capacity_bytes() == 2**26
    limit.write_text("max\n")
    assert host.memory_capacity_bytes() > 2**26
