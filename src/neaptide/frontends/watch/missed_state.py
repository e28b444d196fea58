"""Notices a tensor of the user's own that a traced step reaches past its twin.

While a step is traced, every place that was found holds a twin. Operations on a tensor without one raise by themselves.
Its gradient and its flags can be read and set without an operation: an update that finds no gradient would be left out
without a word.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import torch

from neaptide.errors import CaptureError
from neaptide.frontends.objects.places import replaced
from neaptide.frontends.recording.line_notes import calling_line, is_ours

_PROPERTIES: Final = ("grad", "requires_grad", "data")
_METHODS: Final = ("requires_grad_", "register_hook", "register_post_accumulate_grad_hook", "retain_grad")


class MissedState:
    """The tensors of the user's objects that have a twin, with their names."""

    def __init__(self, tensors: Iterable[tuple[str, torch.Tensor]] = ()) -> None:
        self._names: Mapping[int, str] = {id(tensor): name for name, tensor in tensors}

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Look at each reading and setting of gradients and flags while the context is open."""
        with contextlib.ExitStack() as stack:
            for name in _PROPERTIES:
                stack.enter_context(replaced(torch.Tensor, name, self._property))
            for name in _METHODS:
                stack.enter_context(replaced(torch.Tensor, name, self._checked))
            yield

    def _property(self, original: Any) -> property:
        read, write = self._checked(original.__get__), self._checked(original.__set__)
        return property(read, write, original.__delete__)

    def _checked(self, original: Callable[..., Any]) -> Callable[..., Any]:
        names = self._names

        @functools.wraps(original)
        def checked(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            if id(tensor) in names:
                self._check(tensor)
            return original(tensor, *args, **kwargs)

        return checked

    def _check(self, tensor: torch.Tensor) -> None:
        """Refuse what is asked of a tensor that has a twin, but by neaptide itself."""
        if is_ours(2):
            return
        name, line = self._names[id(tensor)], calling_line(2)
        raise CaptureError(
            f"the step reaches {name} through an object that was not found",
            where=None if line is None else line.location,
            why=f"{name} is replaced while the step is traced; what is read or set here belongs to another tensor",
            next_step="name that object in state=, or keep the tensor in an attribute, a list or a dict of an object that "
            "the step's code names",
        )
