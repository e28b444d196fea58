"""A step on the CPU, on a machine with a card: the card is not touched, which would take hundreds of megabytes of it."""

from __future__ import annotations

import pytest
import torch

from frontends import steps
from neaptide import compile_step
from neaptide.cost.random_states import random_devices, random_state
from neaptide.frontends._torch_private import bare_kernels


def test_a_step_on_the_cpu_begins_nothing_on_a_card(monkeypatch):
    asked = []
    if torch.version.cuda is None:  # a wheel with CUDA would believe it, and ask the driver in optimizers
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    for name in ("_lazy_init", "get_device_properties", "get_device_name", "get_rng_state", "mem_get_info"):
        monkeypatch.setattr(torch.cuda, name, lambda *_, name=name, **__: asked.append(name))
    step, batch = steps.adamw()
    fast = compile_step(step, budget="95%", verify="every 1", time_limit_s=1.0, work_limit=500)
    for _ in range(3):
        fast(batch)
    assert fast.counts.planned == 3
    assert fast.counts.verified.calls
    assert asked == []


@pytest.mark.parametrize(("is_in_use", "expected"), [(False, ["cpu"]), (True, ["cpu", "cuda:0", "cuda:1"])])
def test_generators_of_cards_are_put_back_where_cards_are_in_use(monkeypatch, is_in_use, expected):
    states = {"cuda:0": torch.zeros(16, dtype=torch.uint8), "cuda:1": torch.ones(16, dtype=torch.uint8)}
    put_back = []

    def name(device):
        return f"cuda:{device}" if isinstance(device, int) else str(device)

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: is_in_use)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: states[name(device)])
    monkeypatch.setattr(
        torch.cuda, "set_rng_state", lambda state, device: put_back.append((name(device), state))
    )
    assert random_devices() == expected
    assert [random_state(card) for card in expected[1:]] == [bytes(states[c].tolist()) for c in expected[1:]]
    with bare_kernels(
        draws=True
    ):  # kernels that are tried during a capture, on the card where that is in use
        pass
    assert put_back == [(card, states[card]) for card in expected[1:]]
