"""Device data: presets, and refusals."""

import math

import pytest

from neaptide.cost.devices import DISK_LATENCY_S, Device, Link, MemorySpace
from neaptide.cost.presets import get_device
from neaptide.errors import UsageError
from support.together import together


def make_device(**changes):
    values = {
        "name": "tiny",
        "kind": "cpu",
        "spaces": (MemorySpace("host", 1000, 10.0, 64),),
        "flops_per_s": {"float32": 100.0},
        "launch_s": 0.5,
        "half_flops": 4.0,
        "half_bytes": 2.0,
        "links": (),
        "source": "made up",
    }
    return Device(**{**values, **changes})


def test_unknown_name_lists_the_known_ones():
    with pytest.raises(UsageError, match="rtx4090") as caught:
        get_device("rtx9999")
    assert "rtx9999" in caught.value.what


def test_dtype_without_a_rate_computes_like_float32():
    device = make_device()
    assert device.rate_flops_per_s("bfloat16") == device.rate_flops_per_s("float32") == 100.0


def test_only_blocks_from_a_size_on_are_fresh_and_none_where_the_allocator_keeps_all():
    device = make_device(fresh_s_per_byte=0.5, fresh_from_bytes=100)
    assert [device.fresh_seconds(n) for n in (0, 99, 100, 200)] == [0.0, 0.0, 50.0, 100.0]
    assert make_device(fresh_s_per_byte=0.5).fresh_seconds(10**9) == 0.0


def test_the_host_does_not_run_ahead_of_itself():
    assert make_device().host_call_s == 0.5


def test_storages_of_the_host_wait_on_the_disk():
    space = MemorySpace("host", 1000, 1.0, 64)
    device = make_device(kind="cpu", spaces=(space,)).with_disk(50.0).with_disk(100.0)
    assert (device.slow_space, get_device("h100").slow_space) == ("disk", "host")
    assert [(link.source, link.target) for link in device.links] == [("host", "disk"), ("disk", "host")]
    assert device.link("host", "disk").seconds(200) == DISK_LATENCY_S + 2.0


@together(
    ("changes", "message"),
    [
        ({"spaces": ()}, "no memory space"),
        ({"spaces": (MemorySpace("a", 1, 1.0, 1), MemorySpace("a", 1, 1.0, 1))}, "one name"),
        ({"flops_per_s": {"float16": 1.0}}, "float32"),
        ({"flops_per_s": {"float32": 0.0}}, "above zero"),
        ({"launch_s": -1.0}, "launch_s"),
        ({"fresh_s_per_byte": -1.0}, "fresh_s_per_byte"),
        ({"fresh_from_bytes": -1}, "fresh_from_bytes"),
        ({"half_flops": float("nan")}, "half_flops"),
        ({"fall": 0.0}, "fall"),
        ({"fall": 1.5}, "fall"),
        ({"fall": float("nan")}, "fall"),
        ({"reserved_bytes": 1000}, "leaves nothing"),
        ({"links": (Link("host", "tape", 1.0, 0.0),)}, "tape"),
    ],
)
def test_impossible_device_is_refused(changes, message):
    with pytest.raises(UsageError, match=message):
        make_device(**changes)


@together(
    ("make", "message"),
    [
        (lambda: MemorySpace("a", 1, 1.0, 48), "power of two"),
        (lambda: MemorySpace("a", 0, 1.0, 64), "capacity_bytes"),
        (lambda: MemorySpace("a", 10**400, 1.0, 64), "more than any memory"),
        (lambda: Link("a", "b", math.inf, 0.0), "bandwidth"),
        (lambda: Link("a", "a", 1.0, 0.0), "two different"),
    ],
)
def test_impossible_space_and_link_are_refused(make, message):
    with pytest.raises(UsageError, match=message):
        make()
