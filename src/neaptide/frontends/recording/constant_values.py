"""Values of a trace that depend on no input of the step, or on inputs that are given, computed once."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch.utils import _pytree as pytree

from neaptide.frontends.recording.recording import Record, Recording, TensorFacts
from neaptide.symbolic.size_expr import SizeExpr

NOTHING_GIVEN: Mapping[Record, torch.Tensor] = MappingProxyType({})
MAX_BYTES = 1 << 28  # what a value and all that it is made of may take; a larger one stays unknown


def constant_value(
    record: Record, recording: Recording, given: Mapping[Record, torch.Tensor] = NOTHING_GIVEN
) -> torch.Tensor | None:
    """What a record is in every step; None where it depends on an input, a size that varies, or is too large.

    Inputs in `given` have known numbers; sizes that vary and that they tell count as given. The recording may still be
    going on.
    """
    sources: set[Record] = set()
    if not is_constant(record, recording, sources, given):
        return None
    told = {
        dim: given[source].shape[axis] for dim, (source, axis) in told_sizes(sources & given.keys()).items()
    }
    if any(size.dims() - told.keys() for source in sources for size in _sizes(source)):
        return None
    largest = max((tensor.numel() for tensor in given.values()), default=0)
    if sum(_bytes(source, largest) for source in sources) > MAX_BYTES:
        return None
    return _evaluate(record, dict(given), told)


def is_constant(
    record: Record, recording: Recording, seen: set[Record], given: Collection[Record] = ()
) -> bool:
    """Whether a record depends on no input, by pure operations only; all that it depends on is added to `seen`."""
    stack = [record]
    while stack:
        current = stack.pop()
        if current in seen:
            continue
        seen.add(current)
        if current.kind == "literal" or current in given:
            continue
        target = current.target
        if current.kind != "call" or not isinstance(target, torch._ops.OpOverload):  # noqa: SLF001
            return False
        if target._schema.is_mutable or torch.Tag.nondeterministic_seeded in target.tags:  # noqa: SLF001
            return False
        stack.extend(current.operands())
    written = _written_storages(recording)
    return all(written.isdisjoint(source.storages()) for source in seen)


def has_sizes(record: Record) -> bool:
    """Whether a call takes sizes that vary."""
    return bool(_sizes(record))


def _sizes(record: Record) -> list[SizeExpr]:
    return [leaf for leaf in pytree.tree_leaves((record.args, record.kwargs)) if isinstance(leaf, SizeExpr)]


def told_sizes(inputs: Iterable[Record]) -> dict[str, tuple[Record, int]]:
    """By dim that varies, an input and its axis that has this size."""
    found: dict[str, tuple[Record, int]] = {}
    for record in inputs:
        shape = record.result.shape if isinstance(record.result, TensorFacts) else ()
        for axis, size in enumerate(shape):
            if isinstance(size, SizeExpr) and len(size.dims()) == 1 and size == SizeExpr.dim(*size.dims()):
                found.setdefault(str(size), (record, axis))
    return found


def _written_storages(recording: Recording) -> set[int]:
    """Storages that some operation overwrites, itself or through a view."""
    written: set[int] = set()
    for record in recording.records:
        target = record.target
        if isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable:  # noqa: SLF001
            for operand in record.operands():
                written.update(operand.storages())
    return written


def _bytes(record: Record, largest: int) -> int:
    """What a value takes at most; one whose size varies is taken for as large as the largest that is given."""
    if not isinstance(record.result, TensorFacts):
        return 0
    elements = math.prod(record.result.shape)
    return 8 * (largest if isinstance(elements, SizeExpr) else elements)


def _evaluate(record: Record, known: dict[Record, Any], told: Mapping[str, int]) -> torch.Tensor:
    if record not in known:
        if record.kind == "literal":
            known[record] = record.literal()
        else:
            args, kwargs = pytree.tree_map_only(
                SizeExpr, lambda size: size.evaluate(told), (record.args, record.kwargs)
            )
            args, kwargs = pytree.tree_map_only(
                Record, lambda taken: _evaluate(taken, known, told), (args, kwargs)
            )
            known[record] = record.target(*args, **{k: _on_cpu(k, v) for k, v in kwargs.items()})
    result: torch.Tensor = known[record]
    return result


def _on_cpu(name: str, value: Any) -> Any:
    return torch.device("cpu") if name == "device" and value is not None else value
