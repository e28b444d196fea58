"""What the system says of the processor's caches, and of the memory of this process."""

import mmap
import sys

import pytest

from neaptide.cost import host
from support.together import together

MIB = 2**20


@together(
    ("said", "expected"),
    [
        (
            [("1", "48K", "0"), ("3", "32768K", "0-3,8"), ("2", "1024K", "0")],
            (32 * MIB, 5),
        ),
        ([("3", "many", "0"), ("3",)], (host._USUAL_CACHE_BYTES, 1)),  # nothing that is understood
    ],
)
def test_the_last_cache_is_that_of_the_highest_level(tmp_path, monkeypatch, said, expected):
    monkeypatch.setattr(host, "_CACHES", tmp_path)
    for index, texts in enumerate(said):
        (tmp_path / f"index{index}").mkdir()
        for name, text in zip(("level", "size", "shared_cpu_list"), texts, strict=False):
            (tmp_path / f"index{index}" / name).write_text(f"{text}\n")
    assert host.last_cache.__wrapped__() == expected


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_high_water_mark_rises_with_memory_and_falls_with_a_reset():
    # Pages of its own, which no heap keeps; written, or they would not be resident.
    block = mmap.mmap(-1, 64 * MIB)
    for begin in range(0, len(block), mmap.PAGESIZE):
        block[begin] = 1
    before = host.high_water_mark_bytes()
    assert before >= 64 * MIB
    block.close()
    if not host.reset_high_water_mark():
        pytest.skip("this system does not permit the reset")
    assert host.high_water_mark_bytes() < before


def test_without_proc_the_largest_resident_set_is_used_and_a_mac_counts_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(host, "_STATUS", tmp_path / "absent")
    monkeypatch.setattr(host, "_CLEAR_REFS", tmp_path / "no" / "such" / "place")
    in_kib = host.high_water_mark_bytes()
    assert in_kib > MIB
    assert host.reset_high_water_mark() is False
    monkeypatch.setattr(sys, "platform", "darwin")
    assert host.high_water_mark_bytes() * 512 < in_kib


def test_the_status_file_is_read_in_kib(tmp_path, monkeypatch):
    monkeypatch.setattr(host, "_STATUS", tmp_path / "status")
    host._STATUS.write_text("Name:\tpython\nVmHWM:\t    2048 kB\n")
    assert host.high_water_mark_bytes() == 2 * MIB
