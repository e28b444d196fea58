"""Scratch formulas against the allocator's own events."""

import torch
from torch.utils._pytree import tree_leaves

from neaptide.cost.cards.allocator_events import record
from neaptide.ops import registry
from support.together import together

ATEN = torch.ops.aten
DTYPES = [torch.float32, torch.float64, torch.bfloat16]


def _measured(op, args):
    """Most bytes that the allocator handed out at once during the call, less those of the results."""
    op(*args)
    kept = []
    trace = record(lambda: kept.append(op(*args)))
    storages = {t.untyped_storage()._cdata: t.untyped_storage().nbytes() for t in tree_leaves(kept)}
    return trace.peak_bytes() - sum(storages.values())


def _batch_norm_backward(x):
    channels = x.shape[1]
    ones = x.new_ones(channels)
    _, mean, scale = ATEN.native_batch_norm.default(
        x, ones, ones, ones.clone(), ones.clone(), True, 0.1, 1e-5
    )
    return (x, x, ones, ones, ones, mean, scale, True, 1e-5, [True] * 3)


CASES = {
    "dropout": (ATEN.native_dropout.default, lambda x: (x, 0.1, True)),
    "logsumexp": (ATEN.logsumexp.default, lambda x: (x, [1])),
    "median": (ATEN.median.default, lambda x: (x,)),
    "batch norm": (ATEN.native_batch_norm_backward.default, _batch_norm_backward),
}


@together("dtype", DTYPES, ids=str)
@together("name", CASES)
def test_workspace_is_what_the_allocator_sees(name, dtype, call_of):
    op, arguments = CASES[name]
    for shape in ((2, 8, 16, 16), (4, 3, 5, 7)):
        args = arguments(torch.rand(shape).to(dtype))
        assert registry().require(str(op)).workspace(call_of(op, *args)).evaluate() == _measured(op, args)


def test_dropout_in_evaluation_needs_none(call_of):
    op = ATEN.native_dropout.default
    assert registry().require(str(op)).workspace(call_of(op, torch.ones(64), 0.1, False)).evaluate() == 0


def test_other_devices_are_left_to_a_measurement(call_of):
    op = ATEN.median.default
    call = call_of(op, torch.empty(64, device="meta"))
    assert registry().require(str(op)).workspace(call).evaluate() == 0
