"""Storages of a CUDA device that wait in pinned memory."""

from __future__ import annotations

import pytest
import torch

from neaptide.copy_engines.copy_engine import DEFAULT_SLOW_MEMORY
from neaptide.copy_engines.host_pool import HostPool, make_copy_engine
from neaptide.errors import TransferError

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
DEVICE = torch.device("cuda:0")


def pool_of(nbytes):
    return HostPool(nbytes, make_copy_engine(DEVICE, nbytes, DEFAULT_SLOW_MEMORY))


def test_bits_come_back_and_bytes_are_given_back_meanwhile():
    whole = torch.randn(1 << 20, device=DEVICE)
    expected, view = whole.clone(), whole[3::5]
    pool = pool_of(whole.nbytes)
    before = torch.cuda.memory_allocated()
    copy = pool.store(view)
    copy.leave()
    assert torch.cuda.memory_allocated() == before - expected.nbytes
    copy.load()
    copy.arrive()
    assert torch.cuda.memory_allocated() == before
    assert torch.equal(whole, expected)
    assert torch.equal(view, expected[3::5])


def test_copies_come_behind_what_the_device_was_told_before_and_ahead_of_what_comes_next():
    pool = pool_of(4 << 24)
    for round_ in range(5):
        whole = torch.empty(1 << 24, device=DEVICE)
        torch.cuda._sleep(20_000_000)
        whole.fill_(round_)  # late: the copy has to wait for it
        copy = pool.store(whole)
        copy.leave()
        torch.empty(1 << 24, device=DEVICE).fill_(-1)  # takes the same block
        copy.load()
        copy.arrive()
        assert torch.equal(whole, torch.full_like(whole, round_))
        del copy
    assert pool.live_bytes == 0


def test_a_copy_that_is_given_up_has_ended_before_its_bytes_are_used_again():
    pool = pool_of(4 << 24)
    torch.cuda._sleep(100_000_000)
    copy = pool.store(torch.zeros(1 << 24, device=DEVICE))
    del copy
    ones = torch.ones(1 << 24, device=DEVICE)
    copy = pool.store(ones)
    copy.leave()
    copy.load()
    copy.arrive()
    assert bool((ones == 1).all())


def test_a_block_that_cannot_be_set_aside_is_an_error():
    pool = pool_of(1 << 50)
    with pytest.raises(TransferError, match="pinned memory"):
        pool.store(torch.zeros(10, device=DEVICE))
