"""Which operations can be told where to put their results, read from their schemas.

PyTorch generates an `out=` overload for almost every operation; the generated ones compute as ever and copy, so they
are worth nothing here. `torch.Tag.generated` tells them apart. That the others allocate nothing of the size of
their results is likely but not promised: `runtime.arena.out_probe` measures it.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import torch

from neaptide.cost._torch_private import has_argument
from neaptide.cost.timing.op_runner import find_op
from neaptide.errors import LoweringError
from neaptide.ir.nodes import LOOP_OP
from neaptide.lower import _torch_private as private
from neaptide.lower.places import OutVariant
from neaptide.ops.structural import KERNELS

_COPY: Final = "aten.copy_.default"
# They return their operand's numbers in a tensor of their own, whatever their other arguments say of its geometry.
_COPIES: Final = frozenset({"aten.clone.default", "aten._to_copy.default"})
# Operations that PyTorch itself computes by another one: the same kernel, so the same bits.
_STAND_INS: Final = {
    # aten/src/ATen/native/Activation.cpp: relu(x) is clamp_min(x, 0).
    "aten.relu.default": OutVariant("aten.clamp_min.out", ("out",), extra=(0,)),
}
# A result that is there already has these.
_OF_THE_RESULT: Final = frozenset({"dtype", "layout", "device", "pin_memory"})


@cache
def out_variants(op: str) -> tuple[OutVariant, ...]:
    """Overloads of an operation that may write straight to their results' places, the likeliest first.

    They take the same arguments by name (a number in place of a tensor of one element, and nothing that only
    describes a fresh result) and one tensor for each result. O(overloads).
    """
    if op in _COPIES:
        return (OutVariant(_COPY, is_copy=True),)
    if op in _STAND_INS:
        return (_STAND_INS[op],)
    try:
        operation = resolve_operation(op)
    except LoweringError:
        return ()
    if not private.is_overload(operation):
        return ()
    namespace, name, _ = op.split(".")
    found = []
    for overload in private.overloads(operation):
        if torch.Tag.generated in overload.tags:
            continue
        keywords = private.result_arguments(overload)
        matched = _match(operation, overload)
        if keywords and matched is not None and private.result_count(operation) == len(keywords):
            rank, dropped = matched
            variant = OutVariant(
                f"{namespace}.{name}.{private.overload_name(overload)}", keywords, frozenset(dropped)
            )
            found.append((rank, variant))
    return tuple(variant for _, variant in sorted(found, key=lambda pair: (pair[0], pair[1].op)))


def _match(operation: Any, overload: Any) -> tuple[int, set[str]] | None:
    """How far the arguments are from being the same, and those that are not taken; None when they differ."""
    ours = dict(private.plain_arguments(operation))
    theirs = dict(private.plain_arguments(overload))
    dropped = ours.keys() - theirs.keys()
    if not dropped <= _OF_THE_RESULT or theirs.keys() - ours.keys():
        return None
    if [name for name in ours if name in theirs] != list(theirs):
        return None
    rank = len(dropped)
    for name, kind in theirs.items():
        if kind == ours[name]:
            continue
        # The overload for a number hands it on as a tensor; the dispatcher does the same with ours.
        if (ours[name], kind) not in {("Scalar", "Tensor"), ("number", "Tensor")}:
            return None
        rank += 1
    return rank, dropped


@cache
def reads_whole_storage(op: str) -> bool:
    """Whether an operation counts from the start of an operand's storage, not from where the operand lies.

    >>> reads_whole_storage("aten.as_strided.default"), reads_whole_storage("aten.view.default")
    (True, False)
    """
    try:
        operation = resolve_operation(op)
    except LoweringError:
        return True
    return not private.is_overload(operation) or has_argument(operation, "storage_offset")


def resolve_operation(op: str, location: str = "") -> Any:
    """The callable of a registry name such as `aten.add.Tensor`."""
    if op == LOOP_OP:
        raise LoweringError("a loop is not a single call", where=location or None)
    found = find_op(KERNELS.get(op, op))
    if found is None:
        raise LoweringError(
            f"torch {torch.__version__} has no operation {op}",
            where=location or None,
            next_step="import the library that registers it, or plan with the torch that runs the plan",
        )
    return found
