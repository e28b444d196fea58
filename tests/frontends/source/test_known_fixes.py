"""A refusal names the user's line, the library's line that asked, and what is known to help."""

from __future__ import annotations

import inspect
import math
import random

import pytest
import torch
from torch import nn
from torch.nn import functional

from frontends.steps import net, sgd, simple, update
from neaptide.errors import CaptureError
from neaptide.frontends.torch_step import capture_step
from support.together import together


def transformer():
    model = nn.Transformer(8, 2, 1, 1, 16, batch_first=True)
    mask = model.generate_square_subsequent_mask(5)
    out = lambda x: model(x, x, tgt_mask=mask)  # noqa: E731  HERE
    return simple(out, sgd(model)), torch.randn(2, 5, 8)


def classes():
    model = net()
    labels = torch.randint(0, 3, (6,))
    out = lambda x: model(x) - functional.one_hot(labels)  # noqa: E731  HERE
    return simple(out, sgd(model)), torch.randn(6, 4)


def repeats():
    model = net()
    counts = torch.ones(6, dtype=torch.long)
    out = lambda x: model(x.repeat_interleave(counts, 0))  # noqa: E731  HERE
    return simple(out, sgd(model)), torch.randn(6, 4)


def packed():
    model = nn.LSTM(4, 3, batch_first=True)
    lengths = torch.tensor([5, 3, 2])

    def out(x):
        rows = nn.utils.rnn.pack_padded_sequence(x, lengths, True, False)  # HERE
        return model(rows)[0].data

    return simple(out, sgd(model)), torch.randn(3, 5, 4)


def lengths():
    model = nn.Linear(4, 5)
    labels, sizes = torch.randint(1, 5, (2, 3)), torch.full((2,), 7)

    def out(x):
        return functional.ctc_loss(model(x), labels, sizes, sizes // 2)  # HERE

    return simple(out, sgd(model)), torch.randn(7, 2, 4)


def finite():
    model = net()

    def out(x):
        loss = model(x).mean()
        return loss if math.isfinite(loss.item()) else loss * 0  # HERE

    return simple(out, sgd(model)), torch.randn(6, 4)


def layerdrop():
    model = net()

    def out(x):
        return model(x) if random.random() < 0.5 else model(-x)  # HERE

    return simple(out, sgd(model)), torch.randn(6, 4)


@together(
    ("factory", "library", "fix"),
    [
        (transformer, "transformer.py", "tgt_is_causal=True"),
        (classes, None, "num_classes="),
        (repeats, None, "output_size="),
        (packed, None, "keep the batch padded|padded batch"),
        (lengths, "functional.py", "as tuples of Python numbers"),
        (finite, None, "torch.isfinite"),
        (layerdrop, None, "torch.rand"),
    ],
)
def test_a_refusal_names_both_lines_and_the_fix(factory, library, fix):
    lines, first = inspect.getsourcelines(factory)
    marked = first + next(i for i, line in enumerate(lines) if line.rstrip().endswith("HERE"))
    step, x = factory()
    with pytest.raises(CaptureError, match=fix) as caught:
        capture_step(step, (x,))
    assert f"test_known_fixes.py:{marked}" in caught.value.where
    assert (library is None) == ("asked for at" not in caught.value.why)
    if library is not None:
        assert library in caught.value.why


def test_a_tensor_on_meta_beside_others_is_refused_with_what_makes_such():
    model = net()
    step = simple(lambda x: model(x) + torch.zeros(6, 3, device="meta"), sgd(model))
    with pytest.raises(CaptureError) as refused:
        capture_step(step, (torch.randn(6, 4),))
    assert "meta" in refused.value.why
    assert "jacrev(jacrev(f))" in refused.value.next_step


def test_second_derivatives_in_reverse_are_captured():
    """What a refusal of forward derivatives tells to do."""
    model = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
    optimizer, func = sgd(model), torch.func
    hessians = func.vmap(func.jacrev(func.jacrev(lambda one: model(one).sum())))

    def step(x):
        return update(hessians(x).square().mean(), optimizer)

    assert capture_step(step, (torch.randn(4, 2),)).steady.graph.nodes
