"""Nudged roundings: each number moves by one rounding, and results as far as rounding explains, beside bounds in float64."""

from __future__ import annotations

import pytest
import torch

from neaptide.runtime.measuring.perturbing import PerturbedRoundings, perturb, perturbed_copy

DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_move_by_one_rounding_up_down_or_not_at_all(dtype):
    torch.manual_seed(0)
    before = torch.randn(40, 50).to(dtype)
    after = before.clone()
    perturb(after, 1)
    moved = (after.double() - before.double()) / before.double().abs()
    assert float(moved.abs().max()) <= 2 * torch.finfo(dtype).eps
    shares = [float((moved * way > 0).double().mean()) for way in (1, -1)]
    assert all(0.2 < share < 0.45 for share in shares)
    other = before.clone()
    perturb(other, 2)
    assert not torch.equal(after, other)
    same = before.clone()
    perturb(same, 1)
    assert torch.equal(after, same)


def test_equal_numbers_stay_equal():
    numbers = torch.tensor([0.1, 0.7, 0.1, 0.3, 0.7, 0.1])
    for salt in range(20):
        made = numbers.clone()
        perturb(made, salt)
        assert [int((made == one).sum()) for one in made] == [3, 2, 3, 1, 2, 3]


@pytest.mark.parametrize(
    "kept",
    [
        torch.tensor([0.0, 1.0, 17.0]),
        torch.tensor([0.0, float("-inf"), torch.finfo(torch.float32).min]),
        torch.tensor([3, 4]),
        torch.empty(0),
        torch.tensor(0.5).expand(4),
    ],
)
def test_whole_numbers_and_what_has_no_place_for_each_element_are_left_alone(kept):
    made = kept.clone() if 0 not in kept.stride() else kept
    perturb(made, 3)
    assert torch.equal(made, kept)


def test_the_largest_numbers_stay_finite():
    made = torch.tensor([torch.finfo(torch.float32).max, -torch.finfo(torch.float32).max, 0.3])
    for salt in range(9):
        perturb(made, salt)
    assert bool(made.isfinite().all())


def test_views_and_what_is_overwritten_in_place_are_nudged_by_nobody():
    x = torch.rand(6, 4)
    before = x.clone()
    with PerturbedRoundings(0):
        rows = x[1:3].t()
        x.mul_(2.0)
    assert torch.equal(rows, 2 * before[1:3].t())
    assert torch.equal(x, 2 * before)


def test_what_is_chosen_of_several_numbers_stays_one_of_them():
    x = torch.randn(30, 8).sigmoid()
    pool = torch.nn.functional.max_pool2d(x[None], 2)
    with PerturbedRoundings(0):
        assert bool((x == x.amax(1, keepdim=True)).any(1).all())
        assert bool((x.min(0).values == x.amin(0)).all())
        assert torch.equal(x.sort(0).values, x.gather(0, x.argsort(0)))
        assert torch.equal(torch.nn.functional.max_pool2d(x[None], 2), pool)
        assert bool((x == x.median()).any())
        assert not torch.equal(x.sum(1), x.clone().detach().sum(1) * 1.0)


def test_what_follows_from_no_numbers_of_the_callers_is_fixed():
    w = torch.rand(20)

    def positions():
        return (torch.arange(1, 21) / 7).log() * torch.linspace(0.1, 0.9, 20)

    with PerturbedRoundings(0):
        fixed = positions()
        mixed = torch.zeros(20).add_(w)
        table = mixed.exp()
    assert torch.equal(fixed, positions())
    assert torch.equal(mixed, w)
    assert not torch.equal(table, w.exp())


def test_a_copy_is_nudged_and_the_batch_itself_is_not():
    batch = {"x": torch.rand(50), "y": torch.arange(3), "name": "batch"}
    before = batch["x"].clone()
    made = perturbed_copy(batch, 1)
    assert torch.equal(batch["x"], before)
    assert not torch.equal(made["x"], before)
    assert torch.allclose(made["x"], before)
    assert (made["name"], made["y"].tolist()) == ("batch", [0, 1, 2])
