"""Calls of rows of the op table in several dtypes and layouts: what a capture believes of their results, and what is.

Run as a program it prints what does not agree.
"""

import json
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from axis_samples import overload, samples, tensors
from axis_samples_rare import rare_samples
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from torch.utils._pytree import tree_map_only

from neaptide.frontends.kernels.true_results import with_true_results
from neaptide.ir.registry import Trait
from neaptide.ops import registry

FULL, BRAIN, HALF = torch.float32, torch.bfloat16, torch.float16
# Of the first operand, and of the others.
PRECISIONS = {
    "float32": (FULL, FULL),
    "bfloat16": (BRAIN, BRAIN),
    "float16": (HALF, HALF),
    "bfloat16 with float32": (BRAIN, FULL),
    "float16 with float32": (HALF, FULL),
    "float32 with bfloat16": (FULL, BRAIN),
}
LAYOUTS = ("contiguous", "channels last")
_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


class Sample(NamedTuple):
    """A call of an operation on real tensors of a kind: precision and layout, in words."""

    name: str
    kind: str
    op: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def variants() -> Iterator[Sample]:
    """Every call that has a meaning, in every precision and layout."""
    calls = [*samples(), *rare_samples(), *_elementwise()]
    for name, args, kwargs in calls:
        floats = sum(t.is_floating_point() for t in tensors((args, kwargs)))
        for precision, dtypes in PRECISIONS.items():
            is_mixed = dtypes[0] is not dtypes[1]
            if (floats < 2 and is_mixed) or (not floats and precision != "float32"):
                continue
            for layout in LAYOUTS:
                made = _changed(args, kwargs, dtypes, layout)
                yield Sample(name, f"{precision}, {layout}", overload(name), *made)


def _elementwise() -> Iterator[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    """A call for each other row of the table whose operands are tensors of one shape and numbers."""
    known = {name for name, *_ in (*samples(), *rare_samples())}
    for row in registry():
        name = row.name.removeprefix("aten.")
        if name in known or not row.is_a(Trait.ELEMENTWISE) or row.writes or not row.name.startswith("aten."):
            continue
        try:
            schema = overload(name)._schema
        except AttributeError:  # this torch does not have it
            continue
        given = [_argument(a) for a in schema.arguments if not a.has_default_value() and not a.kwarg_only]
        if None not in given:
            yield name, tuple(given), {}


def _argument(argument: Any) -> Any:
    numbers = {"number": 0.5, "float": 0.5, "int": 1, "bool": False}
    kind = str(argument.type)
    return torch.rand(2, 3, 4, 2) * 0.6 + 0.2 if kind == "Tensor" else numbers.get(kind)


def _changed(args: Any, kwargs: Any, dtypes: tuple[torch.dtype, torch.dtype], layout: str) -> Any:
    seen = 0

    def change(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal seen
        if tensor.is_floating_point():
            tensor = tensor.to(dtypes[min(seen, 1)])
            seen += 1
        elif tensor.is_complex():
            tensor = tensor.to(torch.complex64)
        if layout == "channels last" and tensor.dim() in _FORMATS:
            return tensor.contiguous(memory_format=_FORMATS[tensor.dim()])
        if layout == "channels last" and tensor.dim() > 1:
            return tensor.mT.contiguous().mT
        return tensor.clone()

    return tree_map_only(torch.Tensor, change, (args, kwargs))


def _holder(tensor: torch.Tensor, operands: list[torch.Tensor]) -> int | None:
    """Which operand's bytes a result has; None for bytes of its own."""
    keys = [operand.untyped_storage()._cdata for operand in operands]
    key = tensor.untyped_storage()._cdata
    return keys.index(key) if key in keys else None


def _facts(result: Any, operands: list[torch.Tensor]) -> list[str]:
    """Dtype, shape, strides where an axis has more than one element, and whose bytes, of each result."""
    return [
        f"{tensor.dtype} {tuple(tensor.shape)} "
        f"{[s for n, s in zip(tensor.shape, tensor.stride(), strict=True) if n > 1]} {_holder(tensor, operands)}"
        for tensor in tensors(result)
    ]


def _believed(sample: Sample) -> list[str]:
    mode = FakeTensorMode()
    args, kwargs = tree_map_only(torch.Tensor, mode.from_tensor, (sample.args, sample.kwargs))
    with mode:
        found = with_true_results(sample.op(*args, **kwargs), sample.op, args, kwargs)
        return _facts(found, tensors((args, kwargs)))


def main() -> dict[str, Any]:
    torch.manual_seed(0)
    different, kinds, rows, calls = defaultdict(list), set(), set(), 0
    for sample in variants():
        args, kwargs = tree_map_only(torch.Tensor, torch.clone, (sample.args, sample.kwargs))
        try:
            expected = _facts(sample.op(*args, **kwargs), tensors((args, kwargs)))
        except (RuntimeError, TypeError, ValueError, IndexError):  # no kernel for such operands
            continue
        try:
            found = _believed(sample)
        except (DynamicOutputShapeException, DataDependentOutputException):  # no step with it is captured
            continue
        calls += 1
        rows.add(sample.name)
        kinds.add(sample.kind)
        if found != expected:
            different[sample.name].append(f"{sample.kind}: {found}, really {expected}")
    return {"different": different, "kinds": sorted(kinds), "rows": len(rows), "calls": calls}


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # kernels warn of what the samples do on purpose
    json.dump(main(), sys.stdout)
