"""Fake kernels of ours: geometry as the real kernels give it."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional

from frontends.steps import update
from neaptide.errors import CaptureError
from neaptide.frontends.dispatch.torch_functions import torch_functions
from neaptide.frontends.kernels.true_results import FAKE_KERNELS, longest_target
from neaptide.frontends.objects.places import all_replaced
from neaptide.frontends.recording.recording import Notes
from neaptide.frontends.torch_step import capture_step
from programs.program import descending
from support.step_checks import assert_same_bits, planned
from support.together import together

GROUPED = torch.ops.aten._grouped_mm.default


def operands(dtype, columns):
    """Pairs of 2D and 3D operands in the layouts that the kernels take, and where groups end."""
    ends = torch.tensor([3, 8], dtype=torch.int32)
    weights = torch.randn(2, columns, 16).to(dtype).transpose(1, 2)
    yield torch.randn(8, 16).to(dtype), weights, ends
    yield torch.randn(2, 8, 16).to(dtype), weights, None
    yield torch.randn(2, 8, 16).to(dtype), torch.randn(columns, 16).to(dtype).t(), None
    if columns % 8 == 0:
        yield torch.randn(8, 16).to(dtype).t(), torch.randn(8, columns).to(dtype), ends


@together("columns", [5, 8, 12])
@together("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_grouped_products_have_the_geometry_of_the_kernel(dtype, columns):
    compared = 0
    for left, right, ends in operands(dtype, columns):
        try:
            real = GROUPED(left, right, ends)
        except RuntimeError:  # this build, or this processor, has no kernel for it
            continue
        fake = FAKE_KERNELS[GROUPED](left, right, ends)
        assert (fake.shape, fake.stride(), fake.dtype) == (real.shape, real.stride(), real.dtype)
        assert fake.untyped_storage().nbytes() == real.untyped_storage().nbytes()
        compared += 1
    if not compared:
        pytest.skip("no kernel for any of them")


@pytest.mark.parametrize("make", [tuple, torch.tensor], ids=["numbers", "tensors"])
@pytest.mark.parametrize("is_transposed", [False, True])
def test_ctc_losses_have_the_geometry_of_the_kernel(make, is_transposed):
    scores = torch.randn(3, 9, 6).transpose(0, 1) if is_transposed else torch.randn(9, 3, 6)
    text, lengths = torch.randint(1, 6, (3, 4)), (make([9, 8, 5]), make([4, 2, 0]))
    kind = "default" if make is tuple else "Tensor"
    native = getattr(torch.ops.aten._ctc_loss, kind)
    backward = getattr(torch.ops.aten._ctc_loss_backward, kind)
    real = native(scores, text, *lengths)
    with longest_target(4):
        fake = FAKE_KERNELS[native](scores, text, *lengths)
    assert [(t.shape, t.stride(), t.dtype) for t in real] == [(t.shape, t.stride(), t.dtype) for t in fake]
    given = (torch.ones(3), scores, text, *lengths, *real, 0)
    assert backward(*given).stride() == FAKE_KERNELS[backward](*given).stride()


@together("make", [list, torch.tensor], ids=["numbers", "tensors"])
@together("reduction", ["none", "mean", "sum"])
@together("zero_infinity", [True, False])
@together("is_batched", [True, False])
def test_ctc_loss_is_made_of_the_same_operations(reduction, zero_infinity, is_batched, make):
    torch.manual_seed(0)
    shape, lengths = ((9, 3, 6), ((9, 8, 2), (4, 0, 4))) if is_batched else ((9, 6), ((9,), (4,)))
    text = torch.randint(1, 6, (3, 4) if is_batched else (4,))
    found = []
    host = SimpleNamespace(whole_number=int)
    for context in (
        contextlib.nullcontext(),
        all_replaced(torch_functions(None, host, Notes(), undone=False)),
    ):
        scores = torch.randn(shape, generator=torch.Generator().manual_seed(1), requires_grad=True)
        with context:
            loss = functional.ctc_loss(
                scores.log_softmax(-1),
                text,
                *map(make, lengths),
                reduction=reduction,
                zero_infinity=zero_infinity,
            )
        loss.nan_to_num(posinf=0.0).sum().backward()
        found.append((loss.detach(), scores.grad))
    for ours, theirs in zip(*found, strict=True):
        assert ours.shape == theirs.shape
        assert torch.equal(ours.nan_to_num(7.0), theirs.nan_to_num(7.0))


def test_ctc_lengths_in_tensors_of_the_batch_decide_by_the_longest():
    def factory():
        torch.manual_seed(0)
        model = nn.Linear(4, 5)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(scores, text, counts):
            widths = torch.full((len(text),), len(scores), dtype=torch.long)
            return update(
                functional.ctc_loss(model(scores).log_softmax(-1), text, widths, (counts > 0).sum(1)),
                optimizer,
            )

        return model, step

    (model, step), (twin, twin_step) = factory(), factory()
    scores, text = torch.randn(6, 2, 4), torch.randint(1, 5, (2, 3))
    lengths = [
        torch.tensor(rows)
        for rows in ([[1, 1, 0], [1, 0, 0]], [[1, 0, 0], [1, 1, 0]], [[1, 1, 1], [0, 0, 1]])
    ]
    run = planned(step, scores, further=(text, lengths[0]))
    for counts in (*lengths, lengths[1]):
        assert torch.equal(run(scores, text, counts), twin_step(scores, text, counts))
    assert run.counts.replans == 1, "the longest target is another one once"
    assert torch.equal(model.weight, twin.weight)


def test_ctc_lengths_that_only_the_state_knows_are_refused_with_what_helps():
    model, counts = nn.Linear(4, 5), torch.tensor([2, 1])

    def step(scores, text, widths):
        loss = functional.ctc_loss(model(scores).log_softmax(-1), text, widths, counts)
        loss.backward()
        return loss.detach()

    given = (torch.randn(6, 2, 4), torch.randint(1, 5, (2, 2)), torch.tensor([6, 5]))
    with pytest.raises(
        CaptureError, match=r"as tuples of Python numbers \(lengths\.tolist\(\) outside the step\)"
    ):
        capture_step(step, given)


def test_experts_in_full_precision_give_the_bits_of_eager():
    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.router = nn.Linear(16, 4)
            self.weight = nn.Parameter(torch.randn(4, 16, 8) * 0.1)

        def forward(self, x):
            scores, chosen = self.router(x).softmax(-1).max(-1)
            order = chosen.argsort(stable=True)
            ends = (chosen[:, None] == torch.arange(4)).sum(0).cumsum(0, dtype=torch.int32)
            products = torch._grouped_mm(x[order], self.weight, offs=ends)
            return torch.zeros_like(products).index_copy(0, order, products) * scores[:, None]

    try:
        Experts()(torch.randn(6, 16)).sum().backward()
    except RuntimeError:
        pytest.skip("this build, or this processor, has no kernel for grouped products")

    def factory():
        model = Experts()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        return descending(optimizer, lambda x: model(x).square().mean()), torch.randn(6, 16)

    assert_same_bits(factory)
