from __future__ import annotations

import pytest
import torch

from neaptide.cost.random_states import drawn_again, random_state, set_random_state
from support.dispatch_modes import TimelineMeter


def test_inside_the_old_numbers_are_drawn_and_behind_it_the_new_ones():
    torch.manual_seed(3)
    state = random_state("cpu")
    assert state == bytes(torch.get_rng_state().numpy())
    first = torch.randn(7)
    expected_next = torch.randn(3)
    set_random_state("cpu", state)
    assert torch.equal(torch.randn(7), first)
    with drawn_again("cpu", state):
        assert torch.equal(torch.randn(7), first)
        torch.randn(100)
    assert torch.equal(torch.randn(3), expected_next)


def test_the_generator_is_put_back_when_the_draw_fails():
    torch.manual_seed(3)
    old = random_state("cpu")
    torch.rand(2)
    now = random_state("cpu")
    with pytest.raises(RuntimeError), drawn_again("cpu", old):
        torch.rand(2) @ torch.rand(3)
    assert random_state("cpu") == now


def test_taking_and_putting_a_state_is_no_operation_of_the_step():
    with TimelineMeter([]) as meter:
        set_random_state("cpu", random_state("cpu"))
    assert meter.timeline == []
