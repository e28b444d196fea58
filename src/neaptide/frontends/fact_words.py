"""Facts of a signature in words: names as the user reaches a tensor, differences without raw tuples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree

from neaptide.frontends.step_slots import argument_name

_SHARES = " shares bytes with"


def user_names(structure: Any) -> dict[str, str]:
    """How the user reaches each leaf of the arguments, by the leaf's name in a signature.

    The only argument is called `batch`, whatever its name; others `args[1]` or by their keyword.
    """
    args, kwargs = pytree.tree_unflatten(range(structure.num_leaves), structure)
    roots = {"batch": args[0]} if len(args) == 1 and not kwargs else {}
    roots = roots or {**{f"args[{position}]": part for position, part in enumerate(args)}, **kwargs}
    return {
        argument_name(leaf): root + pytree.keystr(path)
        for root, part in roots.items()
        for path, leaf in pytree.tree_flatten_with_path(part)[0]
    }


def replaced(name: str, names: Mapping[str, str]) -> str:
    """The name of a fact in the user's words."""
    leaf = name.removesuffix(_SHARES)
    return names.get(leaf, leaf) + name[len(leaf) :]


def difference(name: str, now: Any, then: Any) -> str:
    """What differs about one thing, in words."""
    if not (_is_geometry(now) and _is_geometry(then)):
        return f"{name} is {_shown(now)}, was {_shown(then)}"
    shape, strides, dtype, device, requires_grad = zip(now, then, strict=True)
    pairs = {
        "has shape": shape,
        "has strides": strides if shape[0] == shape[1] else (None, None),
        "is": (_dtype(dtype[0]), _dtype(dtype[1])),
        "is on": device,
        "has requires_grad": requires_grad,
    }
    parts = [f"{label} {a}, was {b}" for label, (a, b) in pairs.items() if a != b]
    return f"{name} {' and '.join(parts)}"


def described(fact: Any) -> str:
    """A fact as text for a plan file."""
    if not _is_geometry(fact):
        return str(_shown(fact))
    shape, strides, dtype, device, requires_grad = fact
    text = f"{_dtype(dtype)} of shape {shape}"
    if strides != torch.empty(shape, device="meta").stride():
        text += f" with strides {strides}"
    if device != "cpu":
        text += f" on {device}"
    return text + (" with requires_grad" if requires_grad else "")


def _is_geometry(fact: Any) -> bool:
    return isinstance(fact, tuple) and len(fact) == 5 and isinstance(fact[2], torch.dtype)


def _dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _shown(fact: Any) -> Any:
    """A fact as the user writes it: values without the type that they are compared with."""
    return fact[1] if isinstance(fact, tuple) and len(fact) == 2 and isinstance(fact[0], type) else fact
