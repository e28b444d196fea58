"""What `cost.presets` promises, of every card with a name."""

from __future__ import annotations

import msgspec

from cost.node_costs import node_seconds
from neaptide.cost.devices import device_of
from neaptide.cost.model import EstimatedCost
from neaptide.cost.presets import (
    PRESETS,
    compute_capability,
    cublas_workspace_bytes,
    get_device,
    preset_of_card,
)
from neaptide.ir.builder import GraphBuilder
from neaptide.ops import registry
from support.together import together


@together("name", PRESETS)
def test_a_card_is_found_by_its_name_and_by_what_its_driver_says(name):
    device = get_device(name.upper())
    assert device is PRESETS[name]
    assert (device.name, device.kind) == (name, "cuda")
    assert device.source
    called = f"NVIDIA {name.partition('-')[0].replace('rtx', 'GeForce RTX ').upper()}"
    assert preset_of_card(called, device.main_space.capacity_bytes) is device
    assert device_of({"device": msgspec.to_builtins(device)}) == device


@together("name", PRESETS)
def test_its_driver_and_its_library_keep_bytes_and_each_way_to_the_host_is_slower_than_its_memory(name):
    device = get_device(name)
    assert 0 < device.usable_bytes < device.main_space.capacity_bytes
    assert 0 < cublas_workspace_bytes(device) < device.usable_bytes
    major, minor = compute_capability(device)
    assert (major, minor) >= (7, 0)
    for way in (("device", device.slow_space), (device.slow_space, "device")):
        link = device.link(*way)
        assert link.seconds(0) == link.latency_s > 0
        assert link.bandwidth_bytes_per_s < device.main_space.bandwidth_bytes_per_s
    assert device.link("host", "host") is None
    assert device.fresh_seconds(10**9) == 0.0
    assert device.host_call_s == 0.0, "the host runs ahead"


@together("name", PRESETS)
def test_larger_operations_take_longer_and_none_is_faster_than_the_printed_rates(name):
    device = get_device(name)
    cost = EstimatedCost(device, registry())
    seconds = []
    for size in (64, 1024, 16384):
        builder = GraphBuilder("product", registry())
        a, b = builder.input("a", (size, size)), builder.input("b", (size, size))
        (product,) = builder.node("aten.mm.default", a, b, outputs=[f"c: f32[{size}, {size}]"])
        builder.output(product)
        (taken,) = node_seconds(cost, builder.finish())
        assert taken >= 2 * size**3 / device.rate_flops_per_s("float32")
        seconds.append(taken)
    assert seconds == sorted(seconds)
