"""Ways in which capturing and running a training step goes silently wrong elsewhere; one test for each."""

from __future__ import annotations

import re
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional

from frontends import steps
from neaptide.analysis.legality.schedule import check_schedule
from neaptide.analysis.profile_bytes import memory_profile
from neaptide.errors import VerifyError
from neaptide.frontends.torch_step import capture_step
from neaptide.ir.schedule import Schedule
from neaptide.ir.values import Kind
from neaptide.lower.torch_code import lower
from neaptide.ops import registry
from neaptide.runtime.measuring.meter import LiveBytesMeter
from support.step_checks import assert_same_bits, joined, planned


@pytest.fixture(scope="module")
def batch_norm():
    """Captured; without Inductor, whose decompositions change bits."""
    step, batch = steps.batch_norm()
    before = set(sys.modules)
    captured = capture_step(step, (batch,))
    assert not {m for m in set(sys.modules) - before if m.startswith("torch._inductor.lowering")}
    return captured


@pytest.fixture(scope="module")
def adamw():
    step, batch = steps.adamw()
    return capture_step(step, (batch,))


def test_steps_of_all_kinds_have_the_bits_of_eager():
    """A recurrent kernel needs its workspace; one op over all gradients would keep all of them alive until the end."""
    fused = (lambda: steps.adamw(foreach=True), lambda: steps.adamw(fused=True))
    assert_same_bits(joined(steps.batch_norm, steps.lstm, steps.dropout, *fused))


def test_batch_norm_statistics_are_recorded_as_written(batch_norm):
    """The schema of `native_batch_norm` does not say that it writes the running statistics."""
    graph = batch_norm.steady.graph
    nodes = [n for n in graph.nodes if "native_batch_norm" in n.op]
    written = {graph.storages[a.storage].name for n in nodes for a in n.effects.writes}
    assert written == {"_1_running_mean", "_1_running_var", "_4_running_mean", "_4_running_var"}


@pytest.mark.parametrize("loss", [functional.mse_loss, functional.smooth_l1_loss, functional.l1_loss])
def test_mean_losses_are_charged_what_their_storage_holds(loss):
    """On the CPU some mean losses return a scalar whose storage holds the unreduced loss."""
    model = nn.Linear(16, 16)
    optimizer = steps.sgd(model)
    target, batch = torch.randn(32, 16), torch.randn(32, 16)

    def step(batch):
        return steps.update(loss(model(batch), target), optimizer)

    run = planned(step, batch)
    run(batch)
    graph = capture_step(step, (batch,)).steady.graph
    with LiveBytesMeter([*model.parameters(), target, batch]) as meter:
        run(batch)
    assert meter.peak_bytes == memory_profile(graph, Schedule.program_order(graph)).peak_bytes


def test_program_uses_no_out_variants(batch_norm):
    """Several `out=` overloads allocate a second copy and copy back."""
    graph = batch_norm.steady.graph
    source = lower(graph, Schedule.program_order(graph), registry()).source
    assert not re.search(r"\bout=|_out\(", source)


@pytest.mark.parametrize("flags", [{"foreach": True}, {"fused": True}])
def test_optimizer_updates_are_one_for_each_parameter(flags):
    step, batch = steps.adamw(**flags)
    graph = capture_step(step, (batch,)).steady.graph
    parameters = {s.id for s in graph.storages if s.kind is Kind.PARAMETER}
    for node in graph.nodes:
        assert len({a.storage for a in node.effects.writes} & parameters) <= 1


def test_buffers_and_learning_rate_are_inputs(batch_norm):
    """A tensor that is not passed becomes a constant; so does a learning rate that is a Python float."""
    names = {slot.name: slot.role for slot in batch_norm.steady.inputs}
    assert names["1.running_mean"] == "buffer"
    assert names["optimizer.param_groups[0].lr"] == "rate"
    assert not any(node.op == "neaptide.constant" for node in batch_norm.steady.graph.nodes)


def test_meter_does_not_turn_compilation_off():
    """A dispatch mode that hides compiled frames measures eager without saying so."""
    assert LiveBytesMeter.ignore_compile_internals() is True


def test_a_causal_mask_stays_a_flag():
    """Transformers would build the causal mask as a tensor if it were told that it is traced."""
    zoo = pytest.importorskip("neaptide.zoo")
    pytest.importorskip("transformers")
    step, batch = zoo.factory("gpt2@tiny,layers=1")()
    captured = capture_step(step, (batch,))
    attention = [n for n in captured.steady.graph.nodes if "scaled_dot_product" in n.op]
    assert attention
    assert all(n.kwarg("attn_mask") is None for n in attention)


def test_recomputed_batch_norm_updates_its_statistics_once(batch_norm):
    """Run again as it is, batch norm reads and writes statistics that were updated already."""

    def twice(program):
        graph = program.graph
        sequence = list(range(len(graph.nodes)))
        for node in graph.nodes:
            if "native_batch_norm.default" in node.op:
                creators = [n.id for n in graph.nodes if "relu_" in n.op and n.inputs[0] == node.outputs[0]]
                backward = next(n.id for n in graph.nodes if "native_batch_norm_backward" in n.op)
                position = sequence.index(backward)
                sequence[position:position] = [node.id, *creators]
        return Schedule.from_nodes(graph, sequence)

    assert len(twice(batch_norm.steady).steps) > len(batch_norm.steady.graph.nodes)
    assert_same_bits(steps.batch_norm, twice)


def test_plain_sequential_is_captured_whole(adamw):
    """A compiler that skips frames of torch itself captures nothing of a top-level `nn.Sequential`."""
    graph = adamw.steady.graph
    assert {n.source.phase for n in graph.nodes} == {"forward", "backward", "optimizer"}
    assert sum("addmm" in n.op for n in graph.nodes) == 2


def test_written_inputs_are_never_recomputed(batch_norm):
    """Parameters and statistics are written by the step; repeating their writers would write them twice."""
    graph = batch_norm.steady.graph
    owned = set(graph.input_storages())
    update = next(
        n.id
        for n in graph.nodes
        if any(a.storage in owned for a in n.effects.writes) and n.source.phase == "optimizer"
    )
    with pytest.raises(VerifyError, match="must not be repeated"):
        check_schedule(graph, Schedule.from_nodes(graph, [*range(len(graph.nodes)), update]), registry())


def test_host_scalars_have_no_storage(adamw):
    scalars = [v for v in adamw.steady.graph.values if v.is_host_scalar]
    assert scalars
    assert all(v.storage is None for v in scalars)


def test_optimizer_state_is_made_by_the_first_program_only(adamw):
    """Traced before the state exists, every step would begin with zero moments."""
    assert len(adamw.programs) == 2
    made = [slot for slot in adamw.first[0].outputs if slot.role == "optimizer_state"]
    assert len(made) == 3 * 4
    assert not [slot for slot in adamw.steady.outputs if slot.role == "optimizer_state"]
