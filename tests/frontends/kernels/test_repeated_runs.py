"""Checkpointed functions run as in eager: what their second run does besides computing the same again is kept."""

from __future__ import annotations

import functools
import warnings
from collections import Counter

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from neaptide.errors import CaptureError
from neaptide.frontends.torch_step import capture_step
from programs.catalogue import one
from programs.program import descending
from support.step_checks import assert_same_bits, joined, verify
from support.together import together

# Each of them was wrong without a word where a checkpointed call was taken as a plain one.
WRITE_OR_DEPEND_ON_STATE = (
    "batch_norm_1d",
    "dropout_drawn_anew_reentrant",
    "hook_on_a_shared_parameter",
    "results_overwritten_by_the_caller",
)
COMPUTE_THE_SAME = ("nested_calls", "products_are_saved")
MORE = (
    "spectral_norm_and_dropout",
    "reentrant_inside_of_plain",
    "randomised_relu_reentrant",
    "batch_norm_1d_reentrant",
    "residual_blocks_with_batch_norm",
    "instance_norm_that_tracks",
    "spectral_norm_of_weights",
    "averages_in_buffers_reentrant",
    "dropout_drawn_anew",
    "products_are_saved_in_front_of_batch_norm",
    "one_layer_with_and_without",
    "inputs_without_gradients",
    "run_to_the_end_or_not",
    "adversaries",
    "weight_norm_of_weights",
    "two_dropouts_in_a_block",
    "lstm_cells_reentrant",
)


def factory_of(name):
    return one("checkpointed", name).factory


@functools.cache
def captured(*names):
    torch.manual_seed(0)
    step, batch = joined(*map(factory_of, names))()
    return capture_step(step, (batch,)).steady


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True")
def test_what_the_second_run_does_is_done():
    assert_same_bits(joined(*map(factory_of, WRITE_OR_DEPEND_ON_STATE)), steps=2)


def test_what_the_second_run_computes_again_is_there_once():
    program = captured(*COMPUTE_THE_SAME)
    assert program.checkpoints
    assert not any("stay" in note for note in program.rewrites)
    assert_same_bits(joined(*map(factory_of, COMPUTE_THE_SAME)), steps=2)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True")
@together("name", (*WRITE_OR_DEPEND_ON_STATE, *COMPUTE_THE_SAME, *MORE))
def test_each_of_them_has_the_bits_of_eager(name):
    assert_same_bits(factory_of(name))


def test_only_what_depends_on_the_second_write_stays():
    """The linear layer in front of the norm is there once; the norm, whose statistics move, and its counter twice."""
    program = captured("batch_norm_1d")
    forward = Counter(node.op for node in program.graph.nodes)
    assert forward["aten.addmm.default"] == 3
    assert forward["aten.native_batch_norm.default"] == 6
    assert any("6 operations of the recomputation stay" in note for note in program.rewrites)


def test_undone_calls_run_once_and_a_note_says_what_differs():
    torch.manual_seed(0)
    step, batch = factory_of("batch_norm_1d")()
    program = capture_step(step, (batch,), checkpoints="undo").steady
    assert Counter(node.op for node in program.graph.nodes)["aten.native_batch_norm.default"] == 3
    assert len(program.checkpoints) == 3
    (note,) = (note for note in program.rewrites if "undo" in note)
    assert "run once" in note
    assert "differs" in note


def test_an_input_without_a_gradient_warns_as_eager_does():
    step, batch = factory_of("inputs_without_gradients")()
    with pytest.warns(UserWarning, match="None of the inputs have requires_grad=True"):
        capture_step(step, (batch,))


def test_noise_that_eager_never_fills_is_refused():
    """RReLU saves its noise before it writes it, and the early stop comes in between."""
    layer = nn.Sequential(nn.Linear(4, 4), nn.RReLU())
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)

    def step(x):
        checkpoint(layer, x, use_reentrant=False).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    with pytest.raises(CaptureError, match="stops in front of filling") as refusal:
        capture_step(step, (torch.randn(3, 4),))
    assert "early_stop=False" in (refusal.value.next_step or "")
    assert refusal.value.where


def test_a_branch_of_the_second_run_is_taken():
    """The first run of a reentrant checkpoint has no gradients, so the function may do something else in it."""

    def factory():
        layer, head = nn.Linear(6, 6), nn.Linear(6, 2)
        optimizer = torch.optim.SGD([*layer.parameters(), *head.parameters()], lr=0.1)

        def inside(x):
            return torch.tanh(layer(x)) if torch.is_grad_enabled() else torch.sigmoid(layer(x))

        def loss_of(x):
            return head(checkpoint(inside, x.detach().requires_grad_(), use_reentrant=True)).square().mean()

        return descending(optimizer, loss_of), torch.randn(5, 6)

    assert_same_bits(factory)


def test_two_backward_passes_recompute_twice():
    def factory():
        counting = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Tanh())
        optimizer = torch.optim.SGD(counting.parameters(), lr=0.1)

        def step(x):
            out = checkpoint(counting, x, use_reentrant=False)
            out.square().mean().backward(retain_graph=True)
            out.abs().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            return out.detach()

        return step, torch.randn(7, 6)

    outcome = verify(factory)
    assert outcome.bitwise_equal, outcome.worst


def test_a_gradient_penalty_through_a_checkpoint_has_the_bits_of_eager():
    def factory():
        critic = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1))
        optimizer = torch.optim.SGD(critic.parameters(), lr=0.1)

        def loss_of(x):
            x = x.detach().requires_grad_()
            score = checkpoint(critic, x, use_reentrant=False).sum()
            (slope,) = torch.autograd.grad(score, x, create_graph=True)
            return (slope.norm(dim=1) - 1).square().mean()

        return descending(optimizer, loss_of), torch.randn(9, 5)

    assert_same_bits(factory)


def test_what_a_run_leaves_in_an_attribute_is_that_of_the_last_run():
    class Remembers(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.spread = nn.Linear(6, 6), None

        def forward(self, x):
            out = self.layer(x)
            self.spread = out.detach().var()
            return torch.tanh(out)

    def factory():
        model = Remembers()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x):
            loss = checkpoint(model, x, use_reentrant=False).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss.detach(), model.spread

        return step, torch.randn(7, 6)

    assert_same_bits(factory)


def test_a_cell_that_writes_in_place_is_there_once():
    """What autograd copies for the backward is dead in the first run, and is found there all the same."""
    program = captured("cells_one_by_one")
    forward = Counter(node.op for node in program.graph.nodes)
    assert forward["aten.addmm.default"] == 15
    assert len(program.checkpoints) == 5


def test_a_draw_for_other_operands_is_refused():
    block = nn.Sequential(nn.BatchNorm1d(4), nn.RReLU())
    optimizer = torch.optim.SGD(block.parameters(), lr=0.1)

    def step(x):
        checkpoint(block, x, use_reentrant=False, early_stop=False).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    with pytest.raises(CaptureError, match="from operands that changed") as refusal:
        capture_step(step, (torch.randn(5, 4),))
    assert 'checkpoints="undo"' in (refusal.value.next_step or "")


def test_capture_leaves_the_checkpoints_of_torch_as_they_were():
    before = dict(vars(torch.utils.checkpoint))
    captured.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        captured("batch_norm_1d_reentrant")
    assert {
        name: item for name, item in vars(torch.utils.checkpoint).items() if before.get(name) is not item
    } == {}
