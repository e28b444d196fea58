"""The process's own memory counters."""

import mmap
import sys

import pytest

from neaptide.runtime.measuring import process

MIB = 2**20


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_high_water_mark_rises_with_memory_and_falls_with_a_reset():
    # Pages of its own, which no heap keeps; written, or they would not be resident.
    block = mmap.mmap(-1, 64 * MIB)
    for begin in range(0, len(block), mmap.PAGESIZE):
        block[begin] = 1
    before = process.high_water_mark_bytes()
    assert before is not None
    assert before >= 64 * MIB
    block.close()
    if not process.reset_high_water_mark():
        pytest.skip("this system does not permit the reset")
    after = process.high_water_mark_bytes()
    assert after is not None
    assert after < before


def test_without_proc_the_largest_resident_set_is_used(tmp_path, monkeypatch):
    monkeypatch.setattr(process, "_STATUS", tmp_path / "absent")
    monkeypatch.setattr(process, "_CLEAR_REFS", tmp_path / "no" / "such" / "place")
    mark = process.high_water_mark_bytes()
    assert mark is not None
    assert mark > MIB
    assert process.reset_high_water_mark() is False


def test_mac_counts_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(process, "_STATUS", tmp_path / "absent")
    in_kib = process.high_water_mark_bytes()
    monkeypatch.setattr(sys, "platform", "darwin")
    in_bytes = process.high_water_mark_bytes()
    assert in_kib is not None
    assert in_bytes is not None
    assert in_bytes * 512 < in_kib


def test_status_file_is_read_in_kib(tmp_path, monkeypatch):
    status = tmp_path / "status"
    status.write_text("Name:\tpython\nVmHWM:\t    2048 kB\n")
    monkeypatch.setattr(process, "_STATUS", status)
    assert process.high_water_mark_bytes() == 2 * MIB
