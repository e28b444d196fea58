"""Calls on lists of tensors: one for each tensor on the CPU, one for each of a few sublists on an accelerator."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch import nn

from frontends import steps
from neaptide.frontends import _torch_private as private
from neaptide.frontends.card.pretended import card_named
from neaptide.frontends.programs.list_parts import parts_of
from neaptide.frontends.torch_step import capture_step
from support.step_checks import assert_same_bits, joined


@pytest.fixture
def as_on_an_accelerator(monkeypatch):
    """Kernels of the CPU, called as those of an accelerator are."""
    monkeypatch.setattr(private, "updates_one_by_one", lambda _: False)


def of(make, count=20, layout=lambda p: p):
    """A step of many layers, whose weights are few to the byte."""

    def factory():
        torch.manual_seed(0)
        net = nn.Sequential(*[nn.Linear(16, 16) for _ in range(count)])
        for parameter in net.parameters():
            parameter.data = layout(parameter.data)
        return steps.simple(net, make(net.parameters())), torch.randn(8, 16)

    return factory


def lists_of(factory):
    """How many tensors the first list of each call has, by operation."""
    step, batch = factory()
    graph = capture_step(step, (batch,)).steady.graph
    found: dict[str, list[int]] = {}
    for node in graph.nodes:
        if node.op.startswith(("aten._foreach_", "aten._fused_")):
            found.setdefault(node.op, []).append(len(node.args[0]))
    return found


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([5], [1]),
        ([1] * 16, [1] * 16),
        ([1] * 32, [2] * 16),
        ([1000, 1, 1, 1], [1, 3]),
        ([1, 1, 1000, 1, 1], [2, 1, 2]),
        ([0, 0, 0], [3]),
    ],
)
def test_neighbours_make_up_a_part_up_to_a_sixteenth_of_all(sizes, expected):
    found = parts_of(sizes)
    assert [len(part) for part in found] == expected
    assert [at for part in found for at in part] == list(range(len(sizes)))


@pytest.mark.usefixtures("as_on_an_accelerator")
@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.AdamW(p, foreach=True),
        lambda p: torch.optim.AdamW(p, fused=True),
        lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True, foreach=True),
    ],
)
def test_an_update_on_an_accelerator_is_one_call_for_many_tensors(make):
    counts = {tuple(lengths) for lengths in lists_of(of(make)).values() if sum(lengths) == 40}
    layers, counters = (2,) * 20, (3,) * 13 + (1,)
    assert layers in counts
    assert counts <= {layers, counters}


@pytest.mark.usefixtures("as_on_an_accelerator")
def test_bits_are_those_of_eager():
    optimizers = (
        lambda p: torch.optim.AdamW(p, foreach=True, amsgrad=True),
        lambda p: torch.optim.AdamW(p, fused=True),
        lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, foreach=True),
        lambda p: torch.optim.RMSprop(p, foreach=True, centered=True),
        lambda p: torch.optim.NAdam(p, foreach=True),
        lambda p: torch.optim.Rprop(p, foreach=True),
        lambda p: torch.optim.Adagrad(p, foreach=True),
    )
    assert_same_bits(joined(*(of(make, count=4) for make in optimizers)))


@pytest.mark.usefixtures("as_on_an_accelerator")
def test_a_list_that_takes_the_slow_path_stays_whole():
    """Weights without gaps, but for one: alone, the others would run another kernel than together with it."""

    def with_gaps(weight):
        return torch.empty(weight.shape[0], 32)[:, ::2].copy_(weight) if weight.ndim == 2 else weight

    def sgd(parameters):
        return torch.optim.SGD(parameters, 0.1, foreach=True)

    assert Counter(lists_of(of(sgd))["aten._foreach_add_.List"]) == {2: 20}
    assert lists_of(of(sgd, layout=with_gaps))["aten._foreach_add_.List"] == [40]


def test_on_the_cpu_each_tensor_has_a_call():
    assert (
        lists_of(of(lambda p: torch.optim.AdamW(p, fused=True)))["aten._fused_adamw_.tensor_lr"] == [1] * 40
    )


def test_on_a_card_that_is_not_there_updates_are_calls_on_lists():
    """Eager's choice there, whichever device the tensors are on here."""
    step, batch = of(torch.optim.AdamW)()
    graph = capture_step(step, (batch,), card=card_named("rtx4090")).steady.graph
    lengths = [len(node.args[0]) for node in graph.nodes if node.op == "aten._foreach_addcdiv_.ScalarList"]
    assert lengths == [2] * 20
    step, batch = of(lambda p: torch.optim.SGD(p, 0.1, foreach=False))()
    plain = capture_step(step, (batch,), card=card_named("rtx4090")).steady.graph
    assert not any("_foreach_" in node.op for node in plain.nodes)
