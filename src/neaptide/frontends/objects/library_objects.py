"""Objects of libraries that hold state of the user's: a trainer's wrapper, a scheduler, a loader.

They are entered where they lead to state or to code of the user's. Those of the standard library, of numpy and of
torch's inner rooms are not: what they hold is not called by a training step.
"""

from __future__ import annotations

import functools
import sys
import types
from collections import deque
from collections.abc import Callable
from typing import Any

import torch

from neaptide.frontends.objects.containers import entries_of
from neaptide.frontends.objects.contents import MAX_CONTAINER
from neaptide.frontends.objects.places import attributes_of
from neaptide.frontends.objects.scalars import is_scalar
from neaptide.frontends.source.users_code import class_file, is_library_file

_STATE = (
    *(torch.Tensor, torch.nn.Module, torch.optim.Optimizer),
    *(torch.amp.GradScaler, torch.optim.lr_scheduler.LRScheduler),
)
_CLOSED = frozenset({*sys.stdlib_module_names, "numpy", "neaptide"})
_CLOSED_ROOMS = (
    "torch._",
    "torch.fx",
    "torch.jit",
    "torch.distributed",
    "torch.futures",
    "torch.utils.hooks",
)
_MOST_STEPS = 5  # from one object to the next: a trainer's strategy's precision plugin's scaler


def is_entered(item: Any) -> bool:
    """Whether the attributes of a library's object are looked at."""
    kind = type(item)
    if isinstance(item, (type, types.ModuleType, types.FunctionType, torch.dtype, torch.device)):
        return False
    if kind.__module__.partition(".")[0] in _CLOSED or kind.__module__.startswith(_CLOSED_ROOMS):
        return False
    return is_library_file(class_file(kind))


def is_closed_by_hand(item: Any) -> bool:
    """Whether an object of a library stands for something outside: a connection, a data base, a queue. It is closed."""
    kind = type(item)
    return callable(getattr(kind, "close", None)) and is_library_file(class_file(kind))


class Leads:
    """Tells what leads to state or to code of the user's.

    Args:
        is_users: whether an object is of a class of the user's.
        is_users_file: whether a source file is the user's.
    """

    def __init__(self, is_users: Callable[[Any], bool], is_users_file: Callable[[str], bool]) -> None:
        self._is_users = is_users
        self._is_users_file = is_users_file

    def to_state(self, item: Any) -> bool:
        """Whether something is state or code of the user's, or holds such. O(objects within a few steps)."""
        return self._leads(item, set(), _MOST_STEPS)

    def _leads(self, item: Any, seen: set[int], left: int) -> bool:
        if isinstance(item, _STATE):
            return True
        if left == 0 or is_scalar(item) or isinstance(item, type) or id(item) in seen:
            return False
        seen.add(id(item))
        if isinstance(item, types.FunctionType):
            return self._is_users_file(item.__code__.co_filename)
        return self._is_users(item) or any(self._leads(part, seen, left - 1) for part in _parts(item))


def _parts(item: Any) -> list[Any]:
    if isinstance(item, (dict, list, tuple, set, frozenset, deque)):
        return entries_of(item)[:MAX_CONTAINER]
    if isinstance(item, types.MethodType):
        return [item.__self__, item.__func__]
    if isinstance(item, functools.partial):
        return [item.func, *item.args, *item.keywords.values()]
    return [place.get() for place in attributes_of(item, "")] if is_entered(item) else []
