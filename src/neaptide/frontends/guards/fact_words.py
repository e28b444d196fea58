"""Facts of a signature in words: names as the user reaches a tensor, differences without raw tuples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from neaptide.frontends.guards.tensor_facts import Geometry
from neaptide.frontends.objects.batch_objects import content_of, flatten_with_path
from neaptide.frontends.objects.values import Same
from neaptide.frontends.state.step_slots import argument_name

_SHARES = " shares bytes with"
_LONGEST = 80  # characters of a value that a message shows


def user_names(structure: Any) -> dict[str, str]:
    """How the user reaches each leaf of the arguments, by the leaf's name in a signature.

    The only argument is called `batch`, whatever its name; others `args[1]` or by their keyword.
    """
    args, kwargs = pytree.tree_unflatten(range(structure.num_leaves), structure)
    return {argument_name(leaf): name for name, leaf in contents_by_name(args, kwargs).items()}


def contents_by_name(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """What the leaves of arguments hold, by how the user reaches them: see `user_names`."""
    roots = {"batch": args[0]} if len(args) == 1 and not kwargs else {}
    roots = roots or {**{f"args[{position}]": part for position, part in enumerate(args)}, **kwargs}
    return {
        root + pytree.keystr(path): content_of(leaf)
        for root, part in roots.items()
        for path, leaf in flatten_with_path(part)
    }


def replaced(name: str, names: Mapping[str, str]) -> str:
    """The name of a fact in the user's words."""
    leaf = name.removesuffix(_SHARES)
    return names.get(leaf, leaf) + name[len(leaf) :]


def difference(name: str, now: Any, then: Any) -> str:
    """What differs about one thing, in words."""
    if isinstance(now, Same) or isinstance(then, Same):
        return f"{name} is another object"
    if _are_objects(now) or _are_objects(then):
        return f"{name} is other code" if len(now) == len(then) else f"{name} has {len(now)}, had {len(then)}"
    if not (isinstance(now, Geometry) and isinstance(then, Geometry)):
        return f"{name} is {_short(_shown(now))}, was {_short(_shown(then))}"
    same_shape = now.shape == then.shape
    pairs = {
        "has shape": (_tuple(now.shape), _tuple(then.shape)),
        "has strides": (_tuple(now.strides), _tuple(then.strides)) if same_shape else (None, None),
        "is": (_dtype(now.dtype), _dtype(then.dtype)),
        "is on": (now.device, then.device),
        "has requires_grad": (now.requires_grad, then.requires_grad),
        "is a": (now.kind.__name__, then.kind.__name__),
        "is marked": (_marks(now), _marks(then)),
    }
    parts = [f"{label} {a}, was {b}" for label, (a, b) in pairs.items() if a != b]
    return f"{name} {' and '.join(parts) or 'is of another type of the same name'}"


def described(fact: Any) -> str:
    """A fact as text for a plan file."""
    if not isinstance(fact, Geometry):
        return str(_shown(fact))
    text = f"{_dtype(fact.dtype)} of shape {_tuple(fact.shape)}"
    sizes = [size for size in fact.shape if isinstance(size, int)]
    if len(sizes) < len(fact.shape) or fact.strides != torch.empty(sizes, device="meta").stride():
        text += f" with strides {_tuple(fact.strides)}"
    if fact.device != "cpu":
        text += f" on {fact.device}"
    return text + (" with requires_grad" if fact.requires_grad else "")


def _tuple(sizes: tuple[int | str, ...]) -> str:
    """As Python writes a tuple, but names of dims without quotes."""
    return f"({', '.join(map(str, sizes))}{',' if len(sizes) == 1 else ''})"


def _marks(fact: Geometry) -> str:
    return " and ".join(fact.view) or "plain"


def _are_objects(fact: Any) -> bool:
    return type(fact) is tuple and bool(fact) and all(isinstance(part, Same) for part in fact)


def _short(shown: Any) -> str:
    text = str(shown)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _shown(fact: Any) -> Any:
    """A fact as the user writes it: values without the type that they are compared with."""
    return fact[1] if isinstance(fact, tuple) and len(fact) == 2 and isinstance(fact[0], type) else fact
