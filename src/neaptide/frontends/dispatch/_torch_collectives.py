"""Collectives in place as operations of a program: torch's own functional ones, with a copy behind."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterator
from typing import Any

import torch

from neaptide.frontends._torch_private import resolve

_FUNCTIONAL = "torch.distributed._functional_collectives"


@contextlib.contextmanager
def functional_all_reduce() -> Iterator[None]:
    """While open, `torch.distributed.all_reduce` of a tensor is a reduction that can be traced, and a copy of its result.

    As Dynamo does it. One that is asynchronous stays as it is, and is refused.
    """
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        yield
        return
    original = distributed.all_reduce
    in_place = resolve(_FUNCTIONAL, "all_reduce_inplace")
    names = resolve(_FUNCTIONAL, "REDUCE_OP_TO_STR")

    @functools.wraps(original)
    def all_reduce(tensor: torch.Tensor, op: Any = None, group: Any = None, async_op: bool = False) -> Any:
        op = distributed.ReduceOp.SUM if op is None else op
        name = names.get(op)
        if async_op or name is None:
            return original(tensor, op, group, async_op)
        in_place(tensor, name, distributed.group.WORLD if group is None else group)
        return None

    modules: tuple[Any, ...] = (distributed, sys.modules["torch.distributed.distributed_c10d"])
    for module in modules:
        module.all_reduce = all_reduce
    try:
        yield
    finally:
        for module in modules:
            module.all_reduce = original


def is_opaque_collective(operation: Any) -> bool:
    """Whether an operation takes a process group as an object, which no program can carry."""
    return bool(operation.namespace == "c10d")


def holds_other_tensors(tensor: torch.Tensor) -> bool:
    """Whether a tensor is a wrapper of others (a DTensor, say) and has no bytes of its own."""
    return bool(resolve("torch.utils._python_dispatch", "is_traceable_wrapper_subclass")(tensor))
