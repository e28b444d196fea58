"""The card of a step, as far as it can be known without one."""

from __future__ import annotations

import time
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

# ruff: noqa: E402  (what follows needs torch, which is an extra)
torch = pytest.importorskip("torch")

from neaptide.cost.cache import OpCostCache
from neaptide.cost.cards import cuda_card
from neaptide.cost.cards.cublas import library_blocks
from neaptide.cost.presets import preset_of_card
from neaptide.cost.timing import op_session

GIB = 2**30


@pytest.mark.parametrize(
    ("name", "gib", "expected"),
    [
        ("NVIDIA H100 80GB HBM3", 79, "h100"),
        ("NVIDIA A100-SXM4-40GB", 39, "a100-40g"),
        ("NVIDIA A100-SXM4-80GB", 79, "a100-80g"),
        ("NVIDIA GeForce RTX 4090", 23, "rtx4090"),
        ("NVIDIA L4", 22, "l4"),
        ("Tesla T4", 15, "t4"),
        ("NVIDIA L40S", 45, None),
        ("NVIDIA T400", 4, None),
        ("NVIDIA GeForce RTX 3090 Ti", 24, "rtx3090"),
    ],
)
def test_a_card_has_the_data_sheet_of_its_name_and_capacity(name, gib, expected):
    found = preset_of_card(name, gib * GIB)
    assert (found.name if found else None) == expected


MIB = 2**20


@pytest.mark.parametrize(
    ("major", "config", "light", "expected"),
    [
        (9, None, None, (32 * MIB, 32 * MIB, MIB)),
        (8, None, None, (8 * MIB + 128 * 1024, 8 * MIB + 128 * 1024, MIB)),
        (8, ":4096:8", None, (32 * MIB, 32 * MIB, MIB)),
        (9, ":16:8", "2048", (128 * 1024, 128 * 1024, 2 * MIB)),
        (9, "what?", "", (32 * MIB, 32 * MIB, MIB)),
    ],
)
def test_libraries_keep_a_workspace_in_each_of_two_threads(monkeypatch, major, config, light, expected):
    for name, value in (("CUBLAS_WORKSPACE_CONFIG", config), ("CUBLASLT_WORKSPACE_SIZE", light)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    assert library_blocks(major) == expected


def test_costs_of_a_step_on_the_cpu_ask_for_no_card(monkeypatch):
    """The first question to the driver takes hundreds of megabytes of the card, in a process that may never use it."""
    for name in ("is_available", "get_device_name", "get_device_properties", "mem_get_info", "_lazy_init"):
        monkeypatch.setattr(torch.cuda, name, lambda *_, name=name: pytest.fail(f"{name} was asked"))
    assert "CUDA" not in op_session.environment()
    assert op_session.may_take_bytes() > 0


def test_costs_of_a_step_on_a_card_are_those_of_that_card(monkeypatch):
    monkeypatch.setattr(op_session, "card_in_words", lambda device: f"the card {device}")
    both = [op_session.environment(torch.device("cuda", index)) for index in (0, 1)]
    assert [f"the card cuda:{index}" in text for index, text in enumerate(both)] == [True, True]
    assert op_session.environment() not in both


@pytest.mark.parametrize(
    ("free", "expected"),
    [
        (80 * GIB, (4096, 256 * MIB)),
        (GIB, (4096, 128 * MIB)),
        (100 * MIB, (1024, 8 * MIB)),
        (0, (256, MIB)),
    ],
)
def test_a_card_with_little_free_memory_is_measured_with_little(free, expected):
    assert cuda_card.probes(free) == expected


class Event:
    """An event of a card that does everything at once."""

    def __init__(self, **_):
        self.at_s = 0.0

    def record(self, *_):
        self.at_s = time.perf_counter()

    def synchronize(self):
        pass

    def elapsed_time(self, end):
        return (end.at_s - self.at_s) * 1e3


def test_a_calibration_leaves_generators_alone_and_is_kept(monkeypatch, tmp_path):
    """On the CPU in the place of a card of 23 GiB with 100 MiB free."""
    known = SimpleNamespace(name="NVIDIA L4", total_memory=23 * GIB)
    empty = torch.empty

    def unpinned(*sizes, pin_memory=False, **how):
        return empty(*sizes, **how)

    monkeypatch.setattr(torch, "empty", unpinned)
    for name, value in {
        "Event": Event,
        "get_device_properties": lambda _: known,
        "device": lambda _: nullcontext(),
        "mem_get_info": lambda _: (100 * MIB, 0),
        "current_stream": lambda _: None,
        "synchronize": lambda _: None,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(cuda_card, "_MATMUL_SIZE", 256)
    before, cache = torch.get_rng_state(), OpCostCache(tmp_path / "costs")
    found = cuda_card.card(torch.device("cpu"), cache=cache)
    assert torch.equal(torch.get_rng_state(), before)
    assert (found.name, found.kind, found.main_space.capacity_bytes) == ("NVIDIA L4", "cuda", 23 * GIB)
    assert {(link.source, link.target) for link in found.links} == {("device", "host"), ("host", "device")}
    sheet = preset_of_card(known.name, known.total_memory)
    assert found.flops_per_s["tf32"] == sheet.flops_per_s["tf32"]
    assert found.flops_per_s["float32"] != sheet.flops_per_s["float32"]
    monkeypatch.setattr(cuda_card, "measure", lambda _: pytest.fail("it was measured before"))
    assert cuda_card.card(torch.device("cpu"), cache=cache) == found


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_card_is_measured_and_its_rates_are_possible():
    before = torch.cuda.get_rng_state()
    found = cuda_card.measure(torch.device("cuda:0"))
    assert torch.equal(torch.cuda.get_rng_state(), before)
    sheet = preset_of_card(found.name, found.main_space.capacity_bytes)
    assert found.kind == "cuda"
    assert {(link.source, link.target) for link in found.links} == {("device", "host"), ("host", "device")}
    assert all(1e8 < link.bandwidth_bytes_per_s < 1e12 for link in found.links)
    assert 1e-7 < found.launch_s < 1e-3
    if sheet is not None:
        assert found.main_space.bandwidth_bytes_per_s < 1.1 * sheet.main_space.bandwidth_bytes_per_s
        assert found.flops_per_s["bfloat16"] < 1.1 * sheet.flops_per_s["bfloat16"]
