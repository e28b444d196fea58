"""Attributes of classes, modules and streams that another thing stands in for, while a context is open."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    """Put what `make` makes of an attribute in its place; one that was inherited is so again behind.

    Args:
        owner: whose attribute it is.
        name: of the attribute.
        make: takes what is there, gives what stands in for it.
    """
    own = name in vars(owner)
    original = vars(owner)[name] if own else getattr(owner, name)
    setattr(owner, name, make(getattr(owner, name)))
    try:
        yield
    finally:
        if own:
            setattr(owner, name, original)
        else:
            delattr(owner, name)
