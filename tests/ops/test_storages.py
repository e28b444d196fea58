"""Storages larger than their tensors: measured for each loss, dtype and reduction."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from neaptide.ops import registry
from support.together import together

ATEN = torch.ops.aten
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
OVERSIZED = [ATEN.mse_loss, ATEN.smooth_l1_loss, ATEN.binary_cross_entropy, ATEN.soft_margin_loss]
EXACT = [ATEN.huber_loss, ATEN.l1_loss, ATEN.kl_div, ATEN.binary_cross_entropy_with_logits]
NONE, MEAN, SUM = 0, 1, 2


def _loss(packet, x, y, reduction):
    if packet is ATEN.binary_cross_entropy:
        return packet.default, (x, y, None, reduction)
    if packet is ATEN.binary_cross_entropy_with_logits:
        return packet.default, (x, y, None, None, reduction)
    return packet.default, (x, y, reduction)


def _real_and_predicted(record_call, op, args):
    result = op(*args)
    row = registry().require(str(op))
    sizes = row.storage_bytes(record_call(op, args, {}, result)) if row.storage_bytes else {}
    return result.untyped_storage().nbytes(), sizes[0].evaluate() if sizes else result.nbytes


@together("dtype", DTYPES, ids=str)
@together("reduction", [NONE, MEAN, SUM])
@together("packet", [*OVERSIZED, *EXACT], ids=str)
def test_loss_storage_is_as_predicted(packet, reduction, dtype, record_call):
    for shape in ((32, 64), (7,), ()):
        x, y = torch.rand(shape).to(dtype), torch.rand(shape).to(dtype)
        real, predicted = _real_and_predicted(record_call, *_loss(packet, x, y, reduction))
        assert real == predicted


@together("packet", OVERSIZED, ids=str)
def test_reduced_loss_keeps_the_unreduced_storage(packet):
    x, y = torch.rand(32, 64), torch.rand(32, 64)
    op, args = _loss(packet, x, y, MEAN)
    loss = op(*args)
    assert loss.dim() == 0
    assert loss.untyped_storage().nbytes() == x.nbytes


@given(
    st.permutations([(1, 6), (4, 1)]),
    st.sampled_from([(torch.float32, torch.float64), (torch.bfloat16,) * 2]),
)
def test_broadcasting_and_promoting_losses(record_call, shapes, dtypes):
    x, y = (torch.rand(s).to(d) for s, d in zip(shapes, dtypes, strict=True))
    for op in (ATEN.mse_loss.default, ATEN.smooth_l1_loss.default):
        real, predicted = _real_and_predicted(record_call, op, (x, y, MEAN))
        assert real == predicted


@given(st.integers(1, 3), st.integers(1, 4), st.integers(4, 8))
def test_windows_keep_the_larger_storage(record_call, kernel, stride, size):
    k, s = [kernel, kernel], [stride, stride]
    image = torch.rand(2, 3, size, size)
    real, predicted = _real_and_predicted(record_call, ATEN.im2col.default, (image, k, [1, 1], [0, 0], s))
    assert real == predicted
    columns = ATEN.im2col.default(image, k, [1, 1], [0, 0], s)
    real, predicted = _real_and_predicted(
        record_call, ATEN.col2im.default, (columns, [size, size], k, [1, 1], [0, 0], s)
    )
    assert real == predicted
