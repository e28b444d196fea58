"""Caches of functions (`functools.lru_cache`) that a traced step fills: a tensor of the trace must not stay in one."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any

import torch

from neaptide.errors import CaptureError
from neaptide.frontends import _torch_private as private

_STEPS = 3  # from a cache to the links of its list, to what was returned, to a tensor in a tuple


def clear_caches(functions: Sequence[tuple[str, Any]]) -> list[str]:
    """Empty the caches that hold a tensor of a trace; returns the names of their functions.

    Args:
        functions: with a cache, by name.
    """
    found = [(name, function) for name, function in functions if _holds_fakes(function)]
    for _, function in found:
        function.cache_clear()
    return [name for name, _ in found]


def cached_error(name: str, where: str | None) -> CaptureError:
    """The error for a function that keeps what the trace made, called at a line."""
    return CaptureError(
        f"{name} keeps a tensor that the step makes in its cache",
        where=where,
        why="the function would return the tensor of the first call at every later one, and a program makes its own",
        next_step="compute the tensor outside the step and keep it in a buffer, an attribute or a dict, or call the function "
        "without its cache (__wrapped__)",
    )


def _holds_fakes(function: Any) -> bool:
    if not function.cache_info().currsize:
        return False
    waiting = [item for item in gc.get_referents(function) if not callable(item)]
    seen: set[int] = set()
    for _ in range(_STEPS):
        following: list[Any] = []
        for item in waiting:
            if isinstance(item, torch.Tensor):
                if private.is_fake(item):
                    return True
            elif id(item) not in seen and not isinstance(item, (str, bytes, int, float, type)):
                seen.add(id(item))
                following += gc.get_referents(item)
        waiting = following
    return any(isinstance(item, torch.Tensor) and private.is_fake(item) for item in waiting)
