"""Factories that behave otherwise in the process of a contestant; in a module that such a process can import."""

from __future__ import annotations

import os
import sys

from deep_step import deep_factory
from neaptide.runtime import contestant_worker


def is_elsewhere():
    main = sys.modules["__main__"].__spec__
    return main is not None and main.name == contestant_worker.__name__


def noisy_factory():
    """Prints, in a step as well."""
    print("a model")  # noqa: T201
    step, batch = deep_factory()

    def speaking(x):
        print("a step")  # noqa: T201
        return step(x)

    return (speaking, batch) if is_elsewhere() else (step, batch)


def dying_factory():
    if is_elsewhere():
        os.write(2, b"no memory\n")
        os._exit(3)
    return deep_factory()


def failing_factory():
    if is_elsewhere():
        raise KeyError("a key")
    return deep_factory()
