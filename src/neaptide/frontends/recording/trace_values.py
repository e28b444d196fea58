"""Values of a graph for the tensors of a recording: one storage for each, one value for each view of it."""

from __future__ import annotations

import re
from typing import Any

import torch

from neaptide.errors import CaptureError
from neaptide.frontends.recording.recording import Line, Record, TensorFacts
from neaptide.frontends.recording.traced_sizes import NO_SIZES, SizeFacts, traced_size
from neaptide.ir.builder import GraphBuilder
from neaptide.ir.nodes import Arg, Named, Ref
from neaptide.ir.values import Kind
from neaptide.symbolic.size_expr import SizeExpr

_NAMED = {
    torch.dtype: "dtype",
    torch.device: "device",
    torch.layout: "layout",
    torch.memory_format: "memory_format",
}


class Values:
    """Makes values and finds them again.

    Attributes:
        of: by record: a value id, a tuple of value ids (and None), or None.
        line: that calls the operation whose arguments are read.
    """

    def __init__(self, builder: GraphBuilder, sizes: SizeFacts = NO_SIZES) -> None:
        self.builder = builder
        self.sizes = sizes
        self.of: dict[Record, Any] = {}
        self.storage_of: dict[int, int] = {}
        self.line: Line | None = None
        self.by_geometry: dict[tuple[Any, ...], int] = {}

    def known(self, tensor: TensorFacts) -> int | None:
        """The value that is the same view of the same storage."""
        return self.by_geometry.get(self._geometry(tensor))

    def results(self, name: str, result: Any, outputs: list[int]) -> tuple[Arg, Any]:
        """Makes values for what an op returns; gives their structure and the ids in the same structure."""
        if isinstance(result, TensorFacts):
            outputs.append(self.tensor(name, result, Kind.TEMPORARY))
            return None, outputs[-1]
        if isinstance(result, (torch.SymFloat, torch.SymInt, torch.SymBool, float, int)):
            outputs.append(
                self.builder.add_value(name, host_dtype_of(result), (), (), SizeExpr.const(0), None)
            )
            return None, outputs[-1]
        if result is None:
            return (), None
        structure: list[Arg] = []
        ids: list[Any] = []
        for position, item in enumerate(result):
            if item is None:
                structure.append(None)
                ids.append(None)
                continue
            structure.append(Ref(len(outputs)))
            _, made = self.results(f"{name}_{position}", item, outputs)
            ids.append(made)
        plain = len(structure) > 1 and all(isinstance(s, Ref) for s in structure)
        return (None if plain else tuple(structure)), tuple(ids)

    def tensor(self, name: str, tensor: TensorFacts, kind: Kind) -> int:
        """The value of a tensor; its storage is made with it where it is new."""
        assert tensor.storage is not None
        storage = self.storage_of.get(tensor.storage_key)
        if storage is None:
            nbytes = self.sizes.size(traced_size(tensor.storage.nbytes()))
            storage = self.builder.add_storage(nbytes, str(tensor.device), kind, name)
            self.storage_of[tensor.storage_key] = storage
        value = self.builder.add_value(
            name,
            dtype_of(tensor.dtype),
            tuple(map(self.sizes.size, tensor.shape)),
            tuple(map(self.sizes.size, tensor.strides)),
            self.sizes.size(tensor.offset),
            storage,
        )
        self.by_geometry.setdefault(self._geometry(tensor), value)
        return value

    def _geometry(self, tensor: TensorFacts) -> tuple[Any, ...]:
        size = self.sizes.size
        return (
            *(tensor.storage_key, tensor.dtype, tensor.flags, size(tensor.offset)),
            *(tuple(map(size, tensor.shape)), tuple(map(size, tensor.strides))),
        )

    def argument(self, arg: Any, inputs: list[int]) -> Arg:
        """An argument of an op; values among it are added to `inputs`."""
        if isinstance(arg, Record):
            value = self.of[arg]
            if value is None:
                return None
            if isinstance(value, tuple):
                return tuple(self._slot(v, inputs) for v in value)
            return self._slot(value, inputs)
        if isinstance(arg, (list, tuple)):
            return tuple(self.argument(a, inputs) for a in arg)
        if isinstance(arg, SizeExpr):
            size = self.sizes.size(arg)
            return size.constant_value() if size.is_constant else size
        named = _NAMED.get(type(arg))
        if named is not None:
            return Named(named, str(arg).removeprefix("torch."))
        if arg is None or isinstance(arg, (bool, int, float, str)):
            return arg
        raise CaptureError(
            f"an operation of the step takes {arg!r} ({type(arg).__name__})",
            where=None if self.line is None else self.line.location,
            why="a program can carry tensors, real numbers, strings, types and devices only",
            next_step="make it a tensor outside the step, or pass it with the batch",
        )

    @staticmethod
    def _slot(value: int | None, inputs: list[int]) -> Arg:
        if value is None:
            return None
        if value not in inputs:
            inputs.append(value)
        return Ref(inputs.index(value))


def dtype_of(dtype: torch.dtype) -> str:
    """Name of a dtype without `torch.`."""
    return str(dtype).removeprefix("torch.")


def host_dtype_of(value: Any) -> str:
    """Dtype of the number that stands for a Python number."""
    if isinstance(value, (torch.SymInt, int)) and not isinstance(value, bool):
        return "int64"
    if isinstance(value, (torch.SymBool, bool)):
        return "bool"
    return "float64"


def qualified(target: Any) -> str:
    """Module and name of a traced function."""
    return f"{getattr(target, '__module__', '')}.{getattr(target, '__name__', target)}"


def identifier(text: str) -> str:
    """A name as a Python identifier."""
    name = re.sub(r"\W", "_", text)
    return f"_{name}" if not name or name[0].isdigit() else name
