"""Which dims of a step's arguments may vary: read from what the user names, with their ranges."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from neaptide.errors import UsageError
from neaptide.frontends.objects.batch_objects import flatten_with_path
from neaptide.frontends.recording.trace_values import identifier

Dynamic: TypeAlias = Mapping[str, Mapping[int, Any]]
"""By argument, or path of one: by dim its range `(low, high)` or a `torch.export.Dim`; `high` may be None."""

_FORM = '{"batch": {0: (1, 64), 1: (16, 4096)}}'
SMALLEST = 1  # that a dim can be: nothing is planned for tensors without elements
_EXAMPLE = 2  # smallest size that a trace is made with: torch takes 0 and 1 for constants


class OutsideRangeError(UsageError):
    """A size of the call is outside of the range that was asked for."""


@dataclass(frozen=True)
class DynamicDim:
    """A size that may be another one at each call; it is `size` in the call that is captured.

    `high` is None for no largest size; `places` are leaf of the arguments and dim, for each dim that has this size.
    """

    name: str
    low: int
    high: int | None
    size: int
    places: tuple[tuple[int, int], ...]


def find_dims(
    step: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], dynamic: Dynamic
) -> tuple[DynamicDim, ...]:
    """The dims of the arguments that may vary, in the order in which they are named.

    `dynamic` gives, by the name of an argument or a path such as `batch.input_ids`, each dim with its range. All tensors
    below the path have it, and it is one size; dims that are one size across paths are given one `torch.export.Dim`.
    """
    if not isinstance(dynamic, Mapping):
        raise UsageError(
            f"dynamic= is {dynamic!r}, which names no dim", next_step=f"write it like dynamic={_FORM}"
        )
    leaves = tensors_by_path(step, args, kwargs)
    found: dict[Any, DynamicDim] = {}
    taken: dict[tuple[int, int], str] = {}
    for path, dims in dynamic.items():
        below = {p: leaf for p, leaf in leaves.items() if p == path or p.startswith(f"{path}.")}
        if not below:
            known = ", ".join(dict.fromkeys(p.partition(".")[0] for p in leaves))
            raise UsageError(
                f"dynamic= names {path!r}, which is no argument of the step",
                next_step=f"name one of: {known}; or a path below it, such as batch.input_ids",
            )
        if not isinstance(dims, Mapping) or not dims:
            raise _unreadable(path, dims)
        for axis, asked in dims.items():
            dim = _dim_of(path, axis, asked, below)
            for place in dim.places:
                if place in taken:
                    raise UsageError(f"dynamic= names dim {place[1]} of {taken[place]} twice")
                taken[place] = path
            found[dim.name] = _joined(found[dim.name], dim) if dim.name in found else dim
    return tuple(found.values())


def examples(dims: Sequence[DynamicDim]) -> dict[str, int]:
    """By dim, the size that a trace takes where it has to branch.

    That of the call, but neither 0 nor 1, which torch takes for constants; of a dim with one size that one.
    """
    return {dim.name: dim.low if dim.low == dim.high else max(dim.size, dim.low, _EXAMPLE) for dim in dims}


def axes_inwards(tensor: torch.Tensor) -> tuple[int, ...]:
    """Axes of a tensor, the one whose elements lie closest first."""
    if tensor.is_contiguous():
        return tuple(range(tensor.dim() - 1, -1, -1))
    return tuple(
        sorted(range(tensor.dim()), key=lambda axis: (tensor.stride(axis), tensor.shape[axis], -axis))
    )


def dense_strides(shape: Sequence[Any], axes: Sequence[int]) -> list[Any]:
    """Strides of a tensor without gaps, its axes in that order, innermost first."""
    strides: list[Any] = [0] * len(shape)
    step: Any = 1
    for axis in axes:
        strides[axis], step = step, step * shape[axis]
    return strides


def tensors_by_path(
    step: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, tuple[int, Any]]:
    """Tensors of the arguments with their positions, by paths such as `batch.input_ids`."""
    parameters = inspect.signature(step).parameters.values() if callable(step) else ()
    names = [p.name for p in parameters if p.kind not in (p.KEYWORD_ONLY, p.VAR_KEYWORD)]
    found = {}
    for position, (path, leaf) in enumerate(flatten_with_path((args, dict(kwargs)))):
        if not isinstance(leaf, torch.Tensor):
            continue
        kind, first, *below = map(_word, path)
        if kind == 0 and first < len(names):
            first = names[first]
        found[".".join(map(str, (first, *below)))] = (position, leaf)
    return found


def _word(key: Any) -> Any:
    """What an entry of a path is called: the position in a list, the key of a dict, the name of an attribute."""
    return next((getattr(key, kind) for kind in ("idx", "key", "name") if hasattr(key, kind)), str(key))


def _dim_of(path: str, axis: Any, asked: Any, below: Mapping[str, tuple[int, torch.Tensor]]) -> DynamicDim:
    name, low, high = asked_range(path, axis, asked)
    having = {
        p: (at, leaf) for p, (at, leaf) in below.items() if type(axis) is int and 0 <= axis < leaf.dim()
    }
    if not having:
        raise UsageError(
            f"dynamic= names dim {axis!r} of {path}, which no tensor there has", next_step="count dims from 0"
        )
    sizes = {p: leaf.shape[axis] for p, (_, leaf) in having.items()}
    if len(set(sizes.values())) > 1:
        told = ", ".join(f"{p} has {size}" for p, size in sizes.items())
        raise UsageError(
            f"dim {axis} of {path} is not one size: {told}",
            next_step="name each tensor by its path, such as batch.input_ids",
        )
    size = next(iter(sizes.values()))
    if size < low or (high is not None and size > high):
        raise OutsideRangeError(
            f"dim {axis} of {path} is {size}, outside of its range {low} to {high}",
            next_step="capture with a batch inside of the range",
        )
    return DynamicDim(name, low, high, size, tuple((at, axis) for at, _ in having.values()))


def asked_range(path: str, axis: Any, asked: Any) -> tuple[str, int, int | None]:
    """What a dim is called, its smallest and its largest size, as `dynamic=` says."""
    if isinstance(asked, torch.export.Dim):
        high = asked.max if isinstance(asked.max, int) else None
        return asked.__name__, int(asked.min), high
    if isinstance(asked, (tuple, list)) and len(asked) == 2:
        low, high = asked
        is_read = type(low) is int and (high is None or type(high) is int)
        if is_read and low >= 0 and (high is None or high >= max(low, _EXAMPLE)):
            return f"{identifier(path)}_{axis}", low, high
    raise _unreadable(path, {axis: asked})


def _joined(one: DynamicDim, other: DynamicDim) -> DynamicDim:
    if one.size != other.size:
        raise UsageError(
            f"dynamic= says that sizes {one.size} and {other.size} are both {one.name}",
            next_step="give dims that differ dims of their own",
        )
    return DynamicDim(one.name, one.low, one.high, one.size, one.places + other.places)


def _unreadable(path: str, asked: Any) -> UsageError:
    return UsageError(
        f"dynamic= cannot be read: {path} is given {asked!r}",
        why="each dim needs a smallest and a largest size, 2 or more, or a torch.export.Dim",
        next_step=f"write it like dynamic={_FORM}",
    )
