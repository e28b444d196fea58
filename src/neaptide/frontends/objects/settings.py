"""Objects of libraries that hold settings: a model's configuration, parsed arguments."""

from __future__ import annotations

import argparse
import threading
import types
import weakref
from collections.abc import Iterator
from typing import Any

import torch

from neaptide.frontends.objects.places import AttributePlace, ItemPlace, attributes_of
from neaptide.frontends.objects.scalars import is_scalar

SETTINGS = (
    types.SimpleNamespace,
    argparse.Namespace,
    threading.local,
)  # objects that are nothing but their attributes


def settings_in(item: Any, name: str) -> Iterator[ItemPlace | AttributePlace]:
    """Plain attributes of an object of a library that a module keeps.

    What tells one object from another is no setting: a handle (it refers to its hooks weakly) is a number in a
    count, and an attribute may be the `id` of its own object.
    """
    if callable(item) or isinstance(item, (torch.Tensor, list, tuple, dict)) or is_scalar(item):
        return
    if not isinstance(getattr(item, "__dict__", None), dict) or is_handle(item):
        return
    for place in attributes_of(item, name):
        if is_scalar(place.get()):
            yield place


def is_handle(item: Any) -> bool:
    """Whether an object stands for others that it does not own."""
    return any(isinstance(content, weakref.ref) for content in vars(item).values())


def is_own_identity(content: Any, owner: Any) -> bool:
    """Whether a number is the `id` of the object that keeps it."""
    return type(content) is int and content == id(owner)
