"""The roofline with utilisation: limits, and the laws that planners lean on."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neaptide.cost.devices import Device, MemorySpace
from neaptide.cost.presets import PRESETS, get_device
from neaptide.cost.roofline import seconds
from together import together

TINY = Device(
    name="tiny",
    kind="cpu",
    spaces=(MemorySpace("host", 1000, 10.0, 64),),
    flops_per_s={"float32": 100.0, "bfloat16": 200.0},
    launch_s=0.5,
    half_flops=50.0,
    half_bytes=20.0,
    links=(),
    source="made up",
)
WORK = st.floats(min_value=0, max_value=1e18)
# Small enough that the cost of one launch is not lost to rounding.
MODEST_WORK = st.floats(min_value=0, max_value=1e12)
FALLING = replace(TINY, name="falling", fall=0.25)
DEVICES = st.sampled_from([*(get_device(name) for name in PRESETS), TINY, FALLING])


def test_hand_computed_times():
    # launch 0.5 + (100 + 50) / 100
    assert seconds(TINY, flops=100, bytes_moved=0, dtype="float32") == pytest.approx(2.0)
    # launch 0.5 + (100 + 2 * 50) / 200: the half-work grows with the rate
    assert seconds(TINY, flops=100, bytes_moved=0, dtype="bfloat16") == pytest.approx(1.5)
    # launch 0.5 + max(1.5, (40 + 20) / 10)
    assert seconds(TINY, flops=100, bytes_moved=40, dtype="float32") == pytest.approx(6.5)
    assert seconds(TINY, flops=0, bytes_moved=0, dtype="float32") == 0.5


@together("fall", [1.0, 0.5, 0.25])
def test_a_sixteenth_of_half_work_loses_as_the_fall_says(fall):
    device = replace(TINY, fall=fall)
    span = seconds(device, flops=50.0 / 16, bytes_moved=0, dtype="float32") - device.launch_s
    assert span == pytest.approx(50.0 / 16 * (1 + 16**fall) / 100)


@given(DEVICES, WORK, WORK, WORK, WORK, st.sampled_from(["float32", "bfloat16"]))
def test_time_is_monotone_in_work(device, flops, more_flops, nbytes, more_bytes, dtype):
    less = seconds(device, flops=flops, bytes_moved=nbytes, dtype=dtype)
    assert less <= seconds(device, flops=flops + more_flops, bytes_moved=nbytes + more_bytes, dtype=dtype)


@given(DEVICES, MODEST_WORK, MODEST_WORK, st.integers(1, 64), st.integers(1, 64))
def test_splitting_never_makes_an_operator_faster(device, flops, nbytes, few, extra):
    whole, split = (
        parts * seconds(device, flops=flops / parts, bytes_moved=nbytes / parts, dtype="float32")
        for parts in (few, few + extra)
    )
    assert whole < split
