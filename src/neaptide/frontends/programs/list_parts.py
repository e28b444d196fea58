"""Calls that do one thing for each tensor of a list (`_foreach_*`, `_fused_*`): in how many calls a program makes them.

One call over all gradients would keep all of them alive at once; one call for each tensor is one launch for each tensor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from neaptide.frontends import _torch_private as private
from neaptide.frontends.kernels.trial_operands import is_dense
from neaptide.frontends.recording.recording import Record, TensorFacts

_PARTS: Final = 16
"""No part but one of a single tensor has more than this share of a list's elements: so much of the gradients waits for others."""


def list_parts(record: Record, length: int) -> list[range]:
    """The positions of its lists that each of the calls works on; together all, in order.

    On the CPU these operations run a kernel for each tensor, so there each tensor has a call. On an accelerator one kernel runs for
    many tensors, and rounds otherwise than the kernel for one tensor does. So each call has a sublist. A list that takes the slow
    path there stays whole: some of its tensors would take the fast path alone.
    """
    operands = [
        [item.result for item in taken if isinstance(item, Record)]
        for taken in (*record.args, *record.kwargs.values())
        if isinstance(taken, tuple) and len(taken) == length
    ]
    # Others are lists of numbers that the host knows when the program runs.
    lists = [taken for taken in operands if taken and isinstance(taken[0], TensorFacts)]
    if not lists:
        return [range(at, at + 1) for at in range(length)]
    first = lists[0]
    if any(private.updates_one_by_one(facts.device) for facts in first):
        return [range(at, at + 1) for at in range(length)]
    if "_foreach_" in str(record.target) and not _takes_fast_path(lists):
        return [range(length)]
    return parts_of([math.prod(n for n in facts.shape if isinstance(n, int)) for facts in first])


def parts_of(sizes: Sequence[int]) -> list[range]:
    """Ranges of neighbours, each with at most a share of the sum of all sizes or a single entry. O(entries)."""
    most = -(-sum(sizes) // _PARTS)
    starts, held = [0], 0
    for at, size in enumerate(sizes):
        if at > starts[-1] and held + size > most:
            starts.append(at)
            held = 0
        held += size
    return [range(*ends) for ends in pairwise([*starts, len(sizes)])]


def _takes_fast_path(lists: Sequence[Sequence[TensorFacts]]) -> bool:
    """Whether one kernel works on all of a list: tensors of one dtype and device, dense, and alike at each position.

    As `check_fast_path_restrictions` in PyTorch's `ForeachUtils.h`; what it asks of scalars does not change with a part.
    """
    every = [facts for one in lists for facts in one]
    if len({(facts.dtype, facts.device) for facts in every}) > 1:
        return False
    return all(is_dense(facts.shape, facts.strides) for facts in every) and all(
        len({(facts.shape, _strides(facts)) for facts in alike}) == 1 for alike in zip(*lists, strict=True)
    )


def _strides(facts: TensorFacts) -> tuple[object, ...]:
    return tuple(stride for size, stride in zip(facts.shape, facts.strides, strict=True) if size != 1)
