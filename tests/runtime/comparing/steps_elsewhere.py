"""A factory that behaves otherwise in the process of a contestant; in a module that such a process can import."""

from __future__ import annotations

import os
import sys

from neaptide.runtime.comparing import contestant_worker
from support.steps import deep_factory


def unruly_factory():
    """In a process of its own it prints; the second step fails there, and the fourth ends the process."""
    step, batch = deep_factory()
    main = sys.modules["__main__"].__spec__
    if main is None or main.name != contestant_worker.__name__:
        return step, batch
    print("a model")  # noqa: T201
    steps = []

    def unruly(x):
        print("a step")  # noqa: T201
        steps.append(x)
        if len(steps) == 2:
            raise KeyError("a key")
        if len(steps) == 4:
            os.write(2, b"no memory\n")
            os._exit(3)
        return step(x)

    return unruly, batch
