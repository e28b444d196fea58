"""Storages of a CUDA device that wait in pinned memory; without a card, of one that does what it is told later."""

from __future__ import annotations

import gc

import pytest
import torch

from neaptide.copy_engines.copy_engine import DEFAULT_SLOW_MEMORY, Extents
from neaptide.copy_engines.host_pool import HostPool, make_copy_engine
from neaptide.copy_engines.pinned_block import pinned_block
from neaptide.copy_engines.pinned_copy_engine import PinnedCopyEngine
from neaptide.errors import TransferError
from support.lazy_card import LazyCard


def on_a_card(test):
    return pytest.mark.gpu(
        pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")(test)
    )


DEVICE = torch.device("cuda:0")
NBYTES = 64


def pool_of(nbytes):
    return HostPool(nbytes, make_copy_engine(DEVICE, nbytes, DEFAULT_SLOW_MEMORY))


@on_a_card
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


@on_a_card
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


@on_a_card
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


@on_a_card
def test_a_block_that_cannot_be_set_aside_is_an_error():
    pool = pool_of(1 << 50)
    with pytest.raises(TransferError, match="pinned memory"):
        pool.store(torch.zeros(10, device=DEVICE))


def storage():
    return torch.empty(NBYTES, dtype=torch.uint8).untyped_storage()


@pytest.mark.parametrize("seed", range(30))
def test_bytes_are_right_in_whatever_order_a_card_does_what_it_may(seed):
    """Storages are written, sent, overwritten by others, brought back and read; some copies are given up on their way."""
    card = LazyCard(seed, slots=2, nbytes=NBYTES)
    extents = Extents(2 * NBYTES)
    engine = PinnedCopyEngine(2 * NBYTES, DEVICE, card)
    random, seen = card.random, []
    for number in range(1, 12):
        kept, slot, piece = storage(), random.randrange(2), extents.take(NBYTES)
        card.place(kept, slot)
        card.fill(slot, number)
        copy = engine.send(kept, piece)
        card.work(random.randrange(8))
        if random.random() < 0.3:  # what comes next takes its bytes, on the host and on the card
            copy.abandon(lambda piece=piece: extents.give_back(piece))
            continue
        copy.wait()
        card.fill(slot, 255)  # the bytes are another storage's as soon as the current stream comes to it
        slot = random.randrange(2)
        card.place(kept, slot)
        copy = engine.bring(kept, piece)
        card.work(random.randrange(8))
        if random.random() < 0.3:
            copy.abandon(lambda piece=piece: extents.give_back(piece))
            card.fill(slot, 100 + number)  # the storage is dead, and its bytes are another's
            seen.append((card.read(slot), 100 + number))
            continue
        copy.wait()
        seen.append((card.read(slot), number))
        copy.abandon(lambda piece=piece: extents.give_back(piece))
    card.finish()
    assert [found.unique().tolist() for found, _ in seen] == [[number] for _, number in seen]
    assert extents.free_bytes == 2 * NBYTES


def test_the_host_never_waits_for_the_card():
    """All is told before anything is done: a host that waited would wait for ever."""
    card, extents = LazyCard(0, slots=1, nbytes=NBYTES), Extents(NBYTES)
    engine = PinnedCopyEngine(NBYTES, DEVICE, card)
    for _ in range(3):
        kept, piece = storage(), extents.take(NBYTES)
        card.place(kept, 0)
        engine.send(kept, piece).abandon(lambda piece=piece: extents.give_back(piece))
    assert extents.free_bytes == NBYTES
    card.finish()


class Runtime:
    """Stands in for `torch.cuda.cudart()`."""

    def __init__(self, answer=0):
        self.answer, self.pinned = answer, {}

    def cudaHostRegister(self, address, nbytes, flags):
        self.pinned[address] = nbytes
        return self.answer

    def cudaHostUnregister(self, address):
        del self.pinned[address]


def test_a_pinned_block_has_its_bytes_and_no_more_and_is_given_back():
    runtime = Runtime()
    block = pinned_block(9 * 2**20, runtime)
    assert block.nbytes == 9 * 2**20
    assert list(runtime.pinned.values()) == [9 * 2**20]
    part = block[5:9].fill_(3)
    del block
    gc.collect()
    assert runtime.pinned, "a part of it is left"
    assert part.tolist() == [3] * 4
    del part
    gc.collect()
    assert not runtime.pinned


def test_memory_that_cannot_be_had_or_pinned_is_an_error():
    with pytest.raises(TransferError, match="pinned memory can be set aside"):
        pinned_block(1 << 60, Runtime())
    with pytest.raises(TransferError, match="pinned memory") as caught:
        pinned_block(4096, Runtime(answer=2))
    assert "error 2" in caught.value.why
