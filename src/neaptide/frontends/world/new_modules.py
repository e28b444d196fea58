"""Gives modules that a step imports while it is traced what they named, not what stood in for it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from neaptide.frontends.source.users_code import is_ours


@contextlib.contextmanager
def originals_in_new_modules() -> Iterator[None]:
    """At the end, replace each stand-in that a new module holds (`from math import exp`) by what it wraps."""
    loaded = set(sys.modules)
    try:
        yield
    finally:
        for name in sys.modules.keys() - loaded:
            entries = getattr(sys.modules[name], "__dict__", {})
            for key, content in list(entries.items()):
                original = _original(content)
                if original is not content:
                    dict.__setitem__(entries, key, original)


def _original(item: Any) -> Any:
    while _is_stand_in(item):
        item = item.__wrapped__
    return item


def _is_stand_in(item: Any) -> bool:
    """Whether neaptide has made something that wraps another thing: a function, a partial of one, or a class."""
    try:
        if "__wrapped__" not in vars(item):
            return False
    except TypeError:
        return False
    if isinstance(item, type):
        return is_ours(getattr(sys.modules.get(item.__module__), "__file__", None) or "")
    code = getattr(getattr(item, "func", item), "__code__", None)
    return code is not None and is_ours(code.co_filename)
