"""What `copy_engines.copy_engine.CopyEngine` promises, of the engine of every kind of device, through the pool that uses it."""

from __future__ import annotations

import pytest
import torch

from neaptide.copy_engines.copy_engine import SlowMemory
from neaptide.copy_engines.host_pool import DEVICES, HostPool, make_copy_engine
from neaptide.errors import TransferError

DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.complex64,
    torch.int64,
    torch.uint8,
    torch.bool,
]
NEEDS_A_CARD = (
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
)
pytestmark = pytest.mark.parametrize(
    "device", [pytest.param(name, marks=NEEDS_A_CARD if name != "cpu" else ()) for name in DEVICES]
)


def pool_of(nbytes, device):
    return HostPool(nbytes, make_copy_engine(torch.device(device), nbytes, SlowMemory(bytes_per_s=1e12)))


def there_and_back(pool, tensor):
    copy = pool.store(tensor)
    copy.leave()
    assert tensor.untyped_storage().nbytes() == 0
    copy.load()
    copy.arrive()


def test_every_view_of_a_storage_finds_its_bits_again(device):
    for dtype in DTYPES:
        check_views(dtype, device)


def check_views(dtype, device):
    highest = 2 if dtype is torch.bool else 256
    raw = torch.randint(0, highest, (6 * 8 * dtype.itemsize,), dtype=torch.uint8).to(device)
    whole = raw.clone().view(dtype).reshape(6, 8)
    views = [whole, whole[1:5, ::2], whole.t(), whole.flatten()[3:], whole.expand(2, 6, 8), whole[0, 0]]
    views += [whole.conj(), whole.conj().imag] if dtype.is_complex else []
    geometry = [(v.shape, v.stride(), v.storage_offset(), v.is_conj(), v.is_neg()) for v in views]
    pool = pool_of(whole.nbytes, device)
    there_and_back(pool, views[1])
    assert torch.equal(whole.reshape(-1).view(torch.uint8), raw)
    assert [(v.shape, v.stride(), v.storage_offset(), v.is_conj(), v.is_neg()) for v in views] == geometry
    assert all(v.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr() for v in views)
    assert (pool.live_bytes, pool.peak_bytes) == (0, whole.nbytes)


def test_pieces_of_the_pool_that_are_not_together(device):
    pool = pool_of(400, device)
    small = [torch.randn(25, device=device) for _ in range(4)]
    copies = [pool.store(tensor) for tensor in small]
    for copy in copies:
        copy.leave()
    for at in (0, 2):
        copies[at].load()
        copies[at].arrive()
        copies[at] = None
    large = torch.randn(50, device=device)
    expected = large.clone()
    assert pool.live_bytes == 200
    copy = pool.store(large)
    copy.leave()
    for at in (1, 3):
        copies[at].load()
        copies[at].arrive()
    copy.load()
    copy.arrive()
    assert torch.equal(large, expected)


def test_copies_are_made_in_the_order_in_which_they_are_asked_for(device):
    pool = pool_of(8 << 16, device)
    for number in range(5):
        whole = torch.empty(1 << 14, device=device)
        whole.fill_(number)
        copy = pool.store(whole)
        copy.leave()
        torch.empty(1 << 14, device=device).fill_(-1)  # may take the same bytes
        copy.load()
        copy.arrive()
        assert torch.equal(whole, torch.full_like(whole, number))
        del copy
    assert pool.live_bytes == 0


def test_bytes_of_a_copy_that_is_given_up_are_used_again_without_mixing(device):
    pool = pool_of(4 << 16, device)
    given_up = pool.store(torch.zeros(1 << 16, device=device))
    del given_up
    ones = torch.ones(1 << 16, device=device)
    there_and_back(pool, ones)
    assert torch.equal(ones, torch.ones_like(ones))
    assert pool.live_bytes == 0


def test_a_pool_without_room_says_so_and_stays_sound(device):
    pool = pool_of(500, device)
    held, other = torch.randn(100, device=device), torch.randn(100, device=device)
    copy, expected = pool.store(held), other.clone()
    with pytest.raises(TransferError, match="400 B do not fit on the host") as caught:
        pool.store(other)
    assert "400 B of 500 B are taken" in caught.value.why
    assert torch.equal(other, expected)
    del copy
    there_and_back(pool, other)
    assert torch.equal(other, expected)
