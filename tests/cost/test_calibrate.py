"""Calibration: what it gives, and that it is kept and shared."""

import msgspec
import pytest

# ruff: noqa: E402  (what follows needs torch, which is an extra)
torch = pytest.importorskip("torch")

from neaptide.cost import calibrate, host
from neaptide.cost.cache import OpCostCache
from neaptide.cost.model import roofline_seconds
from support.together import together


@pytest.fixture(scope="module")
def measured():
    with pytest.MonkeyPatch.context() as patch:
        small = {"_BUDGET_PER_PROBE_S": 0.01, "_COPY_BYTES": 2**20, "_PROBED_BYTES": 2**20, "_TIMES": 1}
        for name, value in small.items():
            patch.setattr(calibrate, name, value)
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
    assert roofline_seconds(measured, flops=1e9, bytes_moved=1e6, dtype="float32") > measured.launch_s


def test_result_is_kept_and_measured_again_where_asked_or_damaged_or_with_other_threads(
    measured, tmp_path, monkeypatch
):
    calls, cache = [], OpCostCache(tmp_path / "costs")
    monkeypatch.setattr(calibrate, "measure", lambda: calls.append(1) or measured)
    for again in (False, False, True):
        assert calibrate.this_machine(cache=cache, refresh=again) == measured
    assert len(calls) == 2
    for damaged in ({}, {"device": {}}, {"device": msgspec.to_builtins(measured) | {"launch_s": -1.0}}):
        cache.put_many({calibrate._key(): damaged})
        assert calibrate.this_machine(cache=cache) == measured
    assert len(calls) == 5
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1000)
    calibrate.this_machine(cache=cache)
    assert len(calls) == 6


def test_container_limit_is_used_when_lower(tmp_path, monkeypatch):
    limit = tmp_path / "memory.max"
    limit.write_text("67108864\n")
    monkeypatch.setattr(host, "_CGROUP_LIMITS", (limit, tmp_path / "absent"))
    assert host.memory_capacity_bytes() == 2**26
    limit.write_text("max\n")
    assert host.memory_capacity_bytes() > 2**26


@together(("kept_below", "expected"), [(2**26, 2**26), (2**25, 2**25), (2**20, 2**23), (2**30, 0)])
def test_the_smallest_fresh_block_is_found_from_above(monkeypatch, kept_below, expected):
    monkeypatch.setattr(calibrate, "_is_fresh_again", lambda nbytes: nbytes >= kept_below)
    assert calibrate._smallest_fresh_bytes() == expected


def test_where_pages_are_not_counted_no_block_is_fresh(monkeypatch):
    monkeypatch.setattr(host, "page_faults", lambda: None)
    assert calibrate._smallest_fresh_bytes() == 0
