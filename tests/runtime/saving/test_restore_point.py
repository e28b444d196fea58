from __future__ import annotations

import gc
import weakref

import torch

from neaptide.runtime.calls.state_copy import RestorePoint


def test_whole_storages_are_put_back_through_any_view():
    base = torch.arange(12.0)
    before = base.clone()
    point = RestorePoint([base[3:5]], ())
    base.mul_(2)
    point.put_back()
    assert torch.equal(base, before)


def test_random_state_is_put_back():
    point = RestorePoint([], ["cpu"])
    drawn = torch.rand(3)
    point.put_back()
    assert torch.equal(torch.rand(3), drawn)


def test_parameters_are_put_back_without_a_trace_in_autograd():
    weight = torch.nn.Parameter(torch.ones(3))
    point = RestorePoint([weight], ())
    with torch.no_grad():
        weight.zero_()
    point.put_back()
    assert weight.tolist() == [1, 1, 1]
    assert weight.grad_fn is None
    assert weight.is_leaf


def test_nothing_is_kept_alive_once_it_is_let_go():
    tensor = torch.ones(3)
    point = RestorePoint([tensor], ())
    seen = weakref.ref(tensor.untyped_storage())
    point.let_go()
    del tensor
    gc.collect()
    assert seen() is None
