"""What the globals of all loaded modules are: every dict, list and set that is reached from `sys.modules`, and every class.

Values are compared by identity. It shares no code with the capture.
"""

from __future__ import annotations

import sys
import types
from collections import deque
from collections.abc import Iterator
from typing import Any

_CONTAINERS = (dict, list, set, deque)
# They lose entries whenever an object dies: finalizers, and the sources of programs that finalizers take away.
_OF_THE_COLLECTOR = {"weakref", "linecache"}
_LARGE = 20_000  # entries: a cache of a library


def _entries(holder: Any) -> dict[Any, Any]:
    if isinstance(holder, type):
        return dict(type.__dict__["__dict__"].__get__(holder))
    if isinstance(holder, dict):
        return dict(zip(dict.keys(holder), dict.values(holder), strict=True))
    base = next(kind for kind in _CONTAINERS if issubclass(type(holder), kind))
    return (
        dict.fromkeys(map(id, base.__iter__(holder)))
        if base is set
        else dict(enumerate(base.__iter__(holder)))
    )


def _inner(name: str, entries: dict[Any, Any], module: str) -> Iterator[tuple[str, Any]]:
    for key, content in entries.items():
        kind = type(content)
        is_container = issubclass(kind, _CONTAINERS)
        is_own_class = issubclass(kind, type) and type.__getattribute__(content, "__module__") == module
        if is_container or is_own_class:
            yield f"{name}.{key}" if isinstance(key, (str, int)) else f"{name}[...]", content


class Snapshot:
    """All of it as it is now; what it held is kept alive."""

    def __init__(self) -> None:
        self.held: dict[int, tuple[str, Any, dict[Any, Any]]] = {}
        for module_name, module in list(sys.modules.items()):
            if isinstance(module, types.ModuleType) and module_name not in _OF_THE_COLLECTOR:
                self._look(module_name, vars(module), module_name)

    def _look(self, name: str, root: Any, module: str) -> None:
        waiting = [(name, root)]
        while waiting:
            where, holder = waiting.pop()
            if id(holder) in self.held:
                continue
            try:
                entries = _entries(holder)
            except RuntimeError:  # it grows meanwhile
                continue
            self.held[id(holder)] = (where, holder, entries)
            if len(entries) <= _LARGE:
                waiting.extend(_inner(where, entries, module))

    def changes(self) -> list[str]:
        """Entries that hold something else now, or are gone; counts go on, and what is added is a cache that has grown."""
        found = []
        for where, holder, before in self.held.values():
            now = _entries(holder)
            for key, content in before.items():
                if key not in now:
                    found.append(f"{where}.{key} is gone")
                elif now[key] is not content and not isinstance(content, (int, float)):
                    found.append(f"{where}.{key}: {type(content).__name__}, {type(now[key]).__name__}")
        return found

    def left_by(self, package: str) -> list[str]:
        """Functions and classes of a package that other packages hold now and did not hold before."""
        return [
            f"{where}.{key}"
            for where, holder, before in self.held.values()
            if not where.startswith((package, "sys.modules"))
            for key, content in _entries(holder).items()
            if key not in before and isinstance(content, (type, types.FunctionType))
            if (content.__module__ or "").partition(".")[0] == package
        ]
