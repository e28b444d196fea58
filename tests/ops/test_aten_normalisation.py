"""Batch norm in training mode can be replayed: same bits, and the running statistics are left alone."""

import pytest
import torch

from neaptide.ops import registry
from support.together import together

SHAPES = [(4, 3), (8, 5, 7), (2, 3, 8, 8), (4, 64, 7, 7), (1, 16, 33, 17), (2, 6, 4, 5, 3), (3, 1, 9, 9)]
FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


def _cases():
    for shape in SHAPES:
        for memory_format in (torch.contiguous_format, FORMATS.get(len(shape))):
            if memory_format is not None:
                yield shape, memory_format


def _overload(name):
    _, base, overload = name.split(".")
    return getattr(getattr(torch.ops.aten, base), overload)


_NATIVE = ["aten.native_batch_norm.default", "aten._native_batch_norm_legit.default"]


@together("name", _NATIVE)
@together("affine", [True, False])
@together("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_replay_gives_the_same_bits(name, affine, dtype):
    _check_replay(name, dtype, "cpu", affine=affine)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a card")
@together("name", [*_NATIVE, "aten.cudnn_batch_norm.default"])
@together("dtype", [torch.float32, torch.float16], ids=str)
def test_replay_gives_the_same_bits_on_a_card(name, dtype):
    _check_replay(name, dtype, "cuda", affine=True)


def _check_replay(name, dtype, device, *, affine):
    generator = torch.Generator().manual_seed(7)
    replay = registry().require(name).replay
    assert device in replay.bitwise
    kept = (
        torch.float32 if device == "cuda" else dtype
    )  # of weights and statistics, as layers there have them
    for shape, memory_format in _cases():
        channels = shape[1]
        x = torch.randn(shape, generator=generator).to(device, dtype).contiguous(memory_format=memory_format)
        weight = torch.randn(channels, generator=generator).to(device, kept) if affine else None
        bias = torch.randn(channels, generator=generator).to(device, kept) if affine else None
        mean = torch.zeros(channels, dtype=kept, device=device)
        variance = torch.ones(channels, dtype=kept, device=device)
        args = (x, weight, bias, mean, variance, True, 0.1, 1e-5)
        first = _overload(name)(*args)
        assert mean.any()
        before = mean.clone(), variance.clone()
        second = _overload(replay.op)(*replay.arguments(args))
        for output, stand_in in enumerate(replay.outputs):
            assert torch.equal(first[output], second[stand_in])
            assert first[output].stride() == second[stand_in].stride()
        assert torch.equal(before[0], mean)
        assert torch.equal(before[1], variance)


def test_stand_in_is_pure():
    row = registry().require("aten._native_batch_norm_legit.no_stats")
    assert not row.writes
    assert row.writes_if is None
    assert not row.rng
