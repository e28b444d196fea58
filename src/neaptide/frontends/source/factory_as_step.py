"""A factory that is given as the step: told as soon as it has returned, before anything else that it does is judged."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from neaptide.errors import UsageError
from neaptide.frontends.source.users_code import is_ours


def refuse_factory(returned: Iterable[Any], step: Callable[..., Any]) -> None:
    """Refuse a function that returned a step instead of doing one.

    Args:
        returned: the parts of what it returned that are no tensors.
        step: the function.

    Raises:
        UsageError: it is a factory.
    """
    made = next((part for part in returned if callable(part)), None)
    code = getattr(inspect.unwrap(step), "__code__", None)
    if made is None or (
        code is not None and is_ours(code.co_filename)
    ):  # the head of a step returns its variables
        return
    raise UsageError(
        f"a factory was given as the step: it returned a {type(made).__name__}, which can be called",
        where=None if code is None else f"{code.co_filename}:{code.co_firstlineno}",
        why="a factory returns the tuple (step, batch); a step does forward, loss, backward and update",
        next_step="step, batch = factory(), and give step and batch",
    )
