"""Keeps a trace from reading data that is too large to be compared at each call: a long list, a large array."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from neaptide.errors import CaptureError
from neaptide.frontends.source.trace_errors import location, users_line
from neaptide.frontends.state.step_state import StepState

_READS = (
    *(
        "__getitem__",
        "__setitem__",
        "__delitem__",
        "__iter__",
        "__reversed__",
        "__len__",
        "__contains__",
        "__bool__",
    ),
    *(
        "__add__",
        "__radd__",
        "__sub__",
        "__rsub__",
        "__mul__",
        "__rmul__",
        "__truediv__",
        "__rtruediv__",
        "__eq__",
    ),
    *(
        "__lt__",
        "__le__",
        "__gt__",
        "__ge__",
        "__ne__",
        "__matmul__",
        "__rmatmul__",
        "__array__",
        "__getattr__",
    ),
)


class _TooLarge:
    """Stands for such data during a trace."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, name: str) -> None:
        self.name_of_data = name


def _refusing(_method: str) -> Callable[..., Any]:
    def refuse(data: _TooLarge, *_args: Any) -> Any:
        raise CaptureError(
            f"the step reads {vars(data)['name_of_data']}, which is large",
            where=location(users_line(traceback.extract_stack()[:-1])),
            why="its contents would be frozen into the program, and comparing them at each call takes too long",
            next_step="make a tensor of it, or pass what the step needs of it with the batch",
        )

    return refuse


for _method in _READS:
    setattr(_TooLarge, _method, _refusing(_method))


@contextlib.contextmanager
def closed_data(state: StepState) -> Iterator[None]:
    """Refuse to read such data while the context is open."""
    held = [(place, place.get()) for place in state.closed]
    for place, _ in held:
        place.set(_TooLarge(place.name))
    try:
        yield
    finally:
        for place, data in held:
            place.set(data)
