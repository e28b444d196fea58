"""Eager training steps recorded operation by operation on real tensors, without any frontend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Named
from support.torch_programs import SEED, Recorder

_SAME_TENSOR = {"aten.detach.default", "aten.alias.default", "aten.lift_fresh.default"}
_FAMILIES = {torch.dtype: "dtype", torch.layout: "layout", torch.memory_format: "memory_format"}


class RecordingMode(TorchDispatchMode):
    """Hands every operation to a `Recorder`; a tensor that no operation made is an input."""

    def __init__(self) -> None:
        super().__init__()
        self.recorder = Recorder()
        self.known: dict[Any, Any] = {}

    def value(self, item: Any) -> Any:
        if isinstance(item, torch.Tensor):
            place = _place(item)
            if place not in self.known:
                self.known[place] = self.recorder.input(item.detach(), f"input_{len(self.known)}")
            return self.known[place]
        if isinstance(item, list | tuple):
            return [self.value(i) for i in item]
        if isinstance(item, torch.device):
            return Named("device", str(item))
        family = _FAMILIES.get(type(item))
        return Named(family, str(item).removeprefix("torch.")) if family else item

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if str(func) in _SAME_TENSOR or str(func).startswith("profiler."):
            return func(*args, **kwargs)
        named = {key: self.value(item) for key, item in kwargs.items()}
        made = self.recorder.call(str(func), *map(self.value, args), **named)
        return self._real(made, is_tuple=len(func._schema.returns) > 1)

    def _real(self, made: Any, *, is_tuple: bool = False) -> Any:
        if isinstance(made, list):
            items = [self._real(item) for item in made]
            return tuple(items) if is_tuple else items
        if made is None:
            return None
        data = self.recorder.data[made]
        if isinstance(data, torch.Tensor):
            self.known[_place(data)] = made
        return data


def record_step(factory: Callable[[], tuple[Callable[..., Any], Any]]) -> tuple[Recorder, Graph]:
    """The second step of a training run, when gradients and optimizer state exist; its loss is the output."""
    torch.manual_seed(0)
    step, batch = factory()
    step(batch)
    torch.manual_seed(SEED)
    with RecordingMode() as mode:
        loss = step(batch)
    return mode.recorder, mode.recorder.finish([mode.value(loss)])


def _place(tensor: torch.Tensor) -> Any:
    # The recorder keeps every tensor, so no address is used twice.
    where = tensor.untyped_storage()._cdata, tensor.storage_offset()
    return where, tensor.dtype, tuple(tensor.shape), tensor.stride()
