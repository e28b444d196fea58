"""Ways in which capturing and running a training step goes silently wrong elsewhere; one test for each."""

from __future__ import annotations

import re
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional

from frontends import steps
from neaptide.analysis.legality import check_schedule
from neaptide.analysis.profile_bytes import memory_profile
from neaptide.errors import VerifyError
from neaptide.frontends.torch_step import capture_step
from neaptide.ir.schedule import Schedule
from neaptide.ir.values import Kind
from neaptide.lower.torch_code import lower
from neaptide.ops import registry
from neaptide.runtime.measuring.meter import LiveBytesMeter
from step_checks import as_variant, assert_same_bits, planned, program_order, verify


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_with_dropout_uses_one_mask(reentrant):
    """Traced as it stands, a checkpoint draws a second mask in its recomputation."""
    assert_same_bits(lambda: steps.dropout(reentrant=reentrant))


def test_batch_norm_statistics_are_recorded_as_written():
    """The schema of `native_batch_norm` does not say that it writes the running statistics."""
    step, batch = steps.batch_norm()
    graph = capture_step(step, (batch,)).steady.graph
    written = {
        graph.storages[a.storage].name
        for n in graph.nodes
        if "native_batch_norm" in n.op
        for a in n.effects.writes
    }
    assert written == {"_1_running_mean", "_1_running_var", "_4_running_mean", "_4_running_var"}
    assert_same_bits(steps.batch_norm)


@pytest.mark.parametrize("loss", [functional.mse_loss, functional.smooth_l1_loss, functional.l1_loss])
def test_mean_losses_are_charged_what_their_storage_holds(loss):
    """On the CPU some mean losses return a scalar whose storage holds the unreduced loss."""
    model = nn.Linear(16, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    target = torch.randn(32, 16)

    def step(batch):
        return steps.update(loss(model(batch), target), optimizer)

    batch = torch.randn(32, 16)
    run = planned(step, batch)
    run(batch)
    graph = capture_step(step, (batch,)).steady.graph
    with LiveBytesMeter([*model.parameters(), target, batch]) as meter:
        run(batch)
    assert meter.peak_bytes == memory_profile(graph, Schedule.program_order(graph)).peak_bytes


def test_program_uses_no_out_variants():
    """Several `out=` overloads allocate a second copy and copy back."""
    step, batch = steps.batch_norm()
    graph = capture_step(step, (batch,)).steady.graph
    source = lower(graph, Schedule.program_order(graph), registry()).source
    assert not re.search(r"\bout=|_out\(", source)


@pytest.mark.parametrize("flags", [{"foreach": True}, {"fused": True}])
def test_optimizer_updates_are_one_for_each_parameter(flags):
    """One op over all gradients would keep all of them alive until the end."""
    step, batch = steps.adamw(**flags)
    graph = capture_step(step, (batch,)).steady.graph
    parameters = {s.id for s in graph.storages if s.kind is Kind.PARAMETER}
    for node in graph.nodes:
        assert len({a.storage for a in node.effects.writes} & parameters) <= 1
    assert_same_bits(lambda: steps.adamw(**flags))


def test_buffers_and_learning_rate_are_inputs():
    """A tensor that is not passed becomes a constant; so does a learning rate that is a Python float."""
    step, batch = steps.batch_norm()
    captured = capture_step(step, (batch,))
    names = {slot.name: slot.role for slot in captured.steady.inputs}
    assert names["1.running_mean"] == "buffer"
    assert names["optimizer.param_groups[0].lr"] == "rate"
    assert not any(node.op == "neaptide.constant" for node in captured.steady.graph.nodes)


def test_meter_does_not_turn_compilation_off():
    """A dispatch mode that hides compiled frames measures eager without saying so."""
    assert LiveBytesMeter.ignore_compile_internals() is True


def test_a_causal_mask_stays_a_flag():
    """Transformers would build the causal mask as a tensor if it were told that it is traced."""
    zoo = pytest.importorskip("neaptide.zoo")
    pytest.importorskip("transformers")
    step, batch = zoo.factory("gpt2@tiny")()
    captured = capture_step(step, (batch,))
    attention = [n for n in captured.steady.graph.nodes if "scaled_dot_product" in n.op]
    assert attention
    assert all(n.kwarg("attn_mask") is None for n in attention)
    assert verify(zoo.factory("gpt2@tiny")).bitwise_equal


def test_recomputed_batch_norm_updates_its_statistics_once():
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

    step, batch = steps.batch_norm()
    graph = capture_step(step, (batch,)).steady.graph
    assert len(twice(capture_step(step, (batch,)).steady).steps) > len(graph.nodes)
    assert_same_bits(steps.batch_norm, twice)


def test_recurrent_kernels_keep_their_workspace():
    """Under `no_grad` the recurrent kernel returns no workspace and its backward fails."""
    assert_same_bits(steps.lstm)


def test_plain_sequential_is_captured_whole():
    """A compiler that skips frames of torch itself captures nothing of a top-level `nn.Sequential`."""
    step, batch = steps.mlp()
    graph = capture_step(step, (batch,)).steady.graph
    phases = {n.source.phase for n in graph.nodes}
    assert phases == {"forward", "backward", "optimizer"}
    assert sum("addmm" in n.op for n in graph.nodes) == 2


def test_capture_needs_no_inductor():
    """Inductor's decompositions change bits."""
    step, batch = steps.batch_norm()
    before = set(sys.modules)
    capture_step(step, (batch,))
    assert not {m for m in set(sys.modules) - before if m.startswith("torch._inductor.lowering")}


def test_written_inputs_are_never_recomputed():
    """Parameters and statistics are written by the step; repeating their writers would write them twice."""
    step, batch = steps.batch_norm()
    graph = capture_step(step, (batch,)).steady.graph
    owned = set(graph.input_storages())
    updates = [
        n.id
        for n in graph.nodes
        if any(a.storage in owned for a in n.effects.writes) and n.source.phase == "optimizer"
    ]
    sequence = [*range(len(graph.nodes)), updates[0]]
    with pytest.raises(VerifyError, match="must not be repeated"):
        check_schedule(graph, Schedule.from_nodes(graph, sequence), registry())


def test_host_scalars_have_no_storage():
    step, batch = steps.adamw()
    graph = capture_step(step, (batch,)).steady.graph
    scalars = [v for v in graph.values if v.is_host_scalar]
    assert scalars
    assert all(v.storage is None for v in scalars)


def test_optimizer_state_is_made_by_the_first_program_only():
    """Traced before the state exists, every step would begin with zero moments."""
    step, batch = steps.adamw()
    captured = capture_step(step, (batch,))
    assert len(captured.first) == 1
    made = [slot for slot in captured.first[0].outputs if slot.role == "optimizer_state"]
    assert len(made) == 3 * 4
    assert not [slot for slot in captured.steady.outputs if slot.role == "optimizer_state"]
    variant = as_variant(captured, program_order)
    assert len(variant.graphs) == 2
