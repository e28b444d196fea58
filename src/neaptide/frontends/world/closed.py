"""Keeps a trace from using what it must not: iterators, files, large data, numpy arrays that it writes, functions' caches."""

from __future__ import annotations

import contextlib
import gc
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

import torch

from neaptide.errors import CaptureError
from neaptide.frontends import _torch_private as private
from neaptide.frontends.objects.places import Place, swapped
from neaptide.frontends.source.trace_errors import location, users_line
from neaptide.frontends.state.step_state import StepState

_STEPS = 3  # from a cache to the links of its list, to what was returned, to a tensor in a tuple


def _closed(ways: str, what: str, **told: str) -> Callable[[str], Any]:
    """A class of stand-ins, made with a name, that raise where they are used in one of some ways, or have an attribute read."""

    def refuse(self: Any, *_args: Any) -> Any:
        name = object.__getattribute__(self, "name_of_content")
        where = location(users_line(traceback.extract_stack()))
        raise CaptureError(what.format(name), where=where, **told)

    def name(self: Any, text: str) -> None:
        object.__setattr__(self, "name_of_content", text)

    refused = dict.fromkeys([f"__{way}__" for way in ways.split()], refuse)
    return type("Closed", (), {"__init__": name, "__getattr__": refuse, **refused})


_Iterator: Final = _closed(
    "iter next len getitem setitem delitem contains enter exit call bool",
    "the step reads from or writes to {}",
    why="an iterator, a file or a connection would be used once, at capture, and never again",
    next_step="use it outside the step and pass what it gives as an argument",
)
_LargeData: Final = _closed(
    "getitem setitem delitem iter reversed len contains bool add radd sub rsub mul rmul truediv rtruediv eq lt le gt ge ne "
    "matmul rmatmul array",
    "the step reads {}, which is large",
    why="its contents would be frozen into the program, and comparing them at each call takes too long",
    next_step="make a tensor of it, or pass what the step needs of it with the batch",
)


def closed_state(state: StepState) -> AbstractContextManager[None]:
    """Refuse to use iterators, files and connections of the state, and to read what is too large to be compared at each call."""
    stand_ins: list[tuple[Place, Any]] = [(place, _Iterator(place.name)) for place in state.iterators]
    return swapped([*stand_ins, *((place, _LargeData(place.name)) for place in state.closed)])


@contextlib.contextmanager
def locked_arrays(arrays: Sequence[Any]) -> Iterator[None]:
    """Lock numpy arrays, whatever their size, without a copy: a write is refused where it happens."""
    locked = [array for array in arrays if array.flags.writeable]
    for array in locked:
        array.flags.writeable = False
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            yield
    except ValueError as error:
        if "read-only" not in str(error):
            raise
        raise CaptureError(
            "the step writes a numpy array",
            where=location(users_line(traceback.extract_tb(error.__traceback__))),
            why="it would be written once, at capture, and never again when the captured program runs",
            next_step="keep it in a tensor or buffer, or write it outside the step",
        ) from None
    finally:
        for array in sorted(locked, key=lambda a: a.base is not None):  # a view may be when its base may
            array.flags.writeable = True


# -- caches of functions (`functools.lru_cache`): a tensor of the trace must not stay in one --------------------------


def clear_caches(functions: Sequence[tuple[str, Any]]) -> list[str]:
    """Empty those of some functions, by name, that hold a tensor of a trace; returns the names of these."""
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
