"""How PyTorch copies tensors, where a trace has to do it in another way."""

from __future__ import annotations

import contextlib
import copy as copying
from collections.abc import Iterator
from typing import Any

import torch

from neaptide.frontends._torch_private import resolve


@contextlib.contextmanager
def copied_fakes() -> Iterator[None]:
    """Let `copy.deepcopy` of a fake tensor be a clone of it, as that of a real one is."""
    fake = resolve("torch._subclasses.fake_tensor", "FakeTensor")

    def deepcopy(self: Any, memo: dict[int, Any]) -> Any:
        if id(self) in memo:
            return memo[id(self)]
        if not self.is_leaf:
            return torch.Tensor.__deepcopy__(self, memo)  # type: ignore[no-untyped-call]  # which raises
        copy = self.detach().clone(memory_format=torch.preserve_format)
        if isinstance(self, torch.nn.Parameter):  # as torch does, without gradient and attributes
            copy = torch.nn.Parameter(copy, self.requires_grad)
        else:
            copy.requires_grad_(self.requires_grad)
            own = {key: content for key, content in vars(self).items() if key not in vars(copy)}
            memo[id(self)] = copy
            vars(copy).update(copying.deepcopy(own, memo))
            if self.grad is not None:
                copy.grad = copying.deepcopy(self.grad, memo)
        memo[id(self)] = copy
        return copy

    before = vars(fake).get("__deepcopy__")
    fake.__deepcopy__ = deepcopy
    try:
        yield
    finally:
        if before is None:
            del fake.__deepcopy__
        else:
            fake.__deepcopy__ = before
