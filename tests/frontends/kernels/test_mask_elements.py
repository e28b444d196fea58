"""Masks that are proved causal for all sizes, and masks that are not."""

from __future__ import annotations

import torch

from neaptide.frontends.dims.dynamic_dims import find_dims
from neaptide.frontends.kernels.mask_elements import is_causal_for_all_sizes
from neaptide.frontends.state.state_finder import find_state
from neaptide.frontends.state.step_slots import EntryPattern
from neaptide.frontends.trace.step_trace import StepCall, trace_step
from support.together import together

DYNAMIC = {"x": {0: (2, 9), 1: (2, 9)}}


def grid(x):
    rows = torch.arange(x.shape[1]).unsqueeze(1)
    return rows, torch.arange(x.shape[1]).unsqueeze(0)


def plain(x):
    rows, columns = grid(x)
    return columns <= rows


def turned(x):
    rows, columns = grid(x)
    return rows >= columns


def strict(x):
    rows, columns = grid(x)
    return columns - 1 < rows


def as_numbers(x):
    return torch.where(plain(x), torch.scalar_tensor(0.0), torch.scalar_tensor(float("-inf")))


def expanded(x):
    return plain(x).unsqueeze(0).unsqueeze(0).expand(x.shape[0], -1, x.shape[1], x.shape[1])


def packed(x):
    """As model libraries find where packed sequences begin: nowhere, in one sequence that is counted through."""
    places = torch.arange(x.shape[1]).unsqueeze(0).expand(x.shape[0], -1)
    steps = torch.diff(places, prepend=places[:, :1] - 1, dim=-1)
    sequence = (steps != 1).cumsum(-1)
    rows, columns = grid(x)
    batch = torch.arange(x.shape[0]).unsqueeze(1).unsqueeze(2)
    return (sequence[batch, rows] == sequence[batch, columns]) & plain(x)


def window(x):
    rows, columns = grid(x)
    return (columns <= rows) & (columns > rows - 3)


def shifted(x):
    rows, columns = grid(x)
    return columns + 1 <= rows


def one_too_many(x):
    rows, columns = grid(x)
    return columns - 1 <= rows


def other_way(x):
    rows, columns = grid(x)
    return rows <= columns


def wrong_numbers(x):
    return torch.where(plain(x), torch.scalar_tensor(float("-inf")), torch.scalar_tensor(0.0))


def of_data(x):
    rows, columns = grid(x)
    return (columns <= rows) & (x > 0).unsqueeze(1)


def of_the_size(x):
    rows, columns = grid(x)
    return columns <= rows + (x.shape[1] - 2)


def from_a_later_start(x):
    return torch.arange(2, x.shape[1] + 2).unsqueeze(0) <= grid(x)[0]


CAUSAL = (plain, turned, strict, as_numbers, expanded, packed)
OTHERS = (window, shifted, one_too_many, other_way, wrong_numbers, of_data, of_the_size, from_a_later_start)


def proved(make):
    def step(x):
        return make(x)

    x = torch.zeros(3, 4)
    state = find_state(step, None)
    dims = find_dims(step, (x,), {}, DYNAMIC)
    trace = trace_step(StepCall(step, (x,), {}, state, dims), EntryPattern())
    (mask,) = trace.recording.records[-1].args
    while mask.target is torch.ops.aten.detach.default:
        (mask,) = mask.args
    return is_causal_for_all_sizes(mask)


def is_causal(mask, length):
    seen = mask if mask.dtype is torch.bool else mask == 0
    return bool((seen == torch.ones(length, length, dtype=torch.bool).tril()).all())


@together("make", CAUSAL)
def test_causal_masks_are_proved(make):
    assert proved(make)
    assert all(is_causal(make(torch.zeros(b, t)), t) for b in (1, 3) for t in range(1, 9))


@together("make", OTHERS)
def test_other_masks_are_not(make):
    assert not proved(make)
    assert not all(is_causal(make(torch.zeros(b, t)), t) for b in (1, 3) for t in range(1, 9))
