"""One call of an operation as Python text, and the global objects that the text refers to."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from neaptide.cost._torch_private import has_argument
from neaptide.errors import LoweringError
from neaptide.ir.dependencies import needed_inputs
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Access, Arg, Named, Node, Ref
from neaptide.ir.registry import OpRegistry, Trait
from neaptide.ir.values import Value, contiguous_strides
from neaptide.kernels.fused import fused_kernel
from neaptide.lower import _torch_private as private
from neaptide.lower.names import Names, grouped, size_text
from neaptide.lower.out_variants import resolve_operation
from neaptide.lower.places import OutVariant
from neaptide.lower.program import Watch
from neaptide.ops.fused import FUSED_OP
from neaptide.ops.structural import CONSTANT_OP, HOST_FUNCTIONS, host_function
from neaptide.symbolic.size_expr import SizeExpr

_LONG_LITERAL = 32  # numbers; a longer constant is a global of the program instead of text


@dataclass(frozen=True, slots=True)
class CallText:
    """A call, and how the node's outputs lie in what it returns, as in `Node.results` but never None.

    A string in the results is one that the node does not have and that must be dropped.
    """

    text: str
    results: Arg


@dataclass
class CallWriter:
    """Writes calls; collects the globals that they use.

    `dims` are the variables that hold the dimensions of the function that is being written; `dims_used` collects those
    that its calls need.
    """

    names: Names
    registry: OpRegistry
    globals: dict[str, Any] = field(default_factory=lambda: {"torch": torch})
    dims: dict[str, str] = field(default_factory=dict)
    dims_used: dict[str, None] = field(default_factory=dict)

    def put(
        self, graph: Graph, node: Node, out: OutVariant | None, places: Mapping[int, str], *, again: bool
    ) -> tuple[CallText, dict[int, str]]:
        """A call whose results go to places, by output, and the places of those outputs that must be copied there after it.

        With `out` it writes all results where it is told to; else a single result is copied in the call itself.
        """
        if out is not None:
            return self._write_into(graph, node, out, places), {}
        call = self._write(graph, node, again=again)
        if call.results == Ref(0) and places:
            return CallText(f"{places[0]}.copy_({call.text})", call.results), {}
        return call, dict(places)

    def _write(self, graph: Graph, node: Node, *, again: bool) -> CallText:
        """The call of a node, or of what stands in for it when it is repeated."""
        op, args, kwargs, results = node.op, node.args, dict(node.kwargs), result_structure(node)
        spec = self.registry.find(op)
        if again and spec is not None and spec.replay is not None and node.effects.writes:
            replay = spec.replay
            if any(position is not None and position >= len(args) for position in replay.positions):
                raise LoweringError(
                    f"{op} is repeated as {replay.op}, which needs more positional arguments than it has",
                    where=node.source.location or None,
                )
            op, args, kwargs = replay.op, replay.arguments(args), {}
            results = self._replayed(resolve_operation(op), results, replay.outputs)
        return CallText(self._text(graph, node, op, args, kwargs), results)

    def _write_into(
        self, graph: Graph, node: Node, variant: OutVariant, places: Mapping[int, str]
    ) -> CallText:
        """The call of a node that writes its results to the tensors of `places`, by output; to fresh ones for the others."""
        structure = result_structure(node)
        results = structure if isinstance(structure, tuple) else (structure,)
        slots = [item.slot for item in results if isinstance(item, Ref)]
        if len(slots) != len(results):
            raise LoweringError(
                f"{node.op} has results that the program leaves out, so none can be told its place"
            )
        targets = [
            places.get(slot) or self.empty(graph, node, graph.values[node.outputs[slot]]) for slot in slots
        ]
        if variant.is_copy:
            text = self._text(graph, node, variant.op, node.args[:1], {}, before=targets)
            return CallText(text, structure)
        kwargs = {key: arg for key, arg in node.kwargs if key not in variant.dropped}
        into = [f"{key}={target}" for key, target in zip(variant.keywords, targets, strict=True)]
        text = self._text(graph, node, variant.op, (*node.args, *variant.extra), kwargs, behind=into)
        return CallText(text, structure)

    def empty(self, graph: Graph, node: Node, value: Value) -> str:
        """A fresh tensor of the geometry of one of a node's results."""
        shape = self.sizes(value.shape, node)
        options = f"dtype=torch.{value.dtype}, device={self.device(device_of(graph, value))}"
        if value.strides == contiguous_strides(value.shape):
            return f"torch.empty({shape}, {options})"
        return f"torch.empty_strided({shape}, {self.sizes(value.strides, node)}, {options})"

    def bind(self, base: str, thing: Any, key: object = None) -> str:
        """A global name for an object; the same for the same base and key."""
        name = self.names.fresh(base, (key,))
        self.globals[name] = thing
        return name

    def device(self, name: str) -> str:
        """A global name for a device."""
        return self.bind(f"device_{name}", torch.device(name), name)

    # -- the parts of a call

    def _text(
        self,
        graph: Graph,
        node: Node,
        op: str,
        args: tuple[Arg, ...],
        kwargs: dict[str, Arg],
        *,
        before: Sequence[str] = (),
        behind: Sequence[str] = (),
    ) -> str:
        if op == CONSTANT_OP:
            return self._constant(graph, node)
        if op == FUSED_OP:
            return self._fused(graph, node)
        needed = set(needed_inputs(graph, node))
        # A value used twice, once for its shape, is handed over as it is: it is there anyway.
        absent = {v for v in node.inputs if v not in needed}
        if op in HOST_FUNCTIONS:
            callee = self.bind(op, host_function(op), op)
            on_device = False
        else:
            operation = resolve_operation(op, node.source.location)
            callee = self.bind(op, operation, op)
            on_device = bool(absent) and self._needs_device_tensor(op, operation)
            if absent and not on_device and private.returns_tensors(operation):
                kwargs = {**kwargs, "device": kwargs.get("device") or Named("device", _device(graph, node))}

        def text(arg: Arg) -> str:
            if isinstance(arg, Ref):
                value = graph.values[node.inputs[arg.slot]]
                if value.id in absent:
                    return self.stand_in(graph, node, value, on_device=on_device)
                return self.names.variable(value)
            if isinstance(arg, tuple):
                return f"[{', '.join(map(text, arg))}]"
            return self._literal(arg, node)

        texts = [*before, *map(text, args), *(f"{key}={text(arg)}" for key, arg in kwargs.items()), *behind]
        return f"{callee}({', '.join(texts)})"

    def _fused(self, graph: Graph, node: Node) -> str:
        """The kernel of a body, which takes its operands in a list."""
        text = node.args[0]
        assert isinstance(text, str)
        kernel = self.bind("fused", fused_kernel(text), text)
        operands = [self.names.variable(graph.values[number]) for number in node.inputs]
        return f"{kernel}([{', '.join(operands)}])"

    def _needs_device_tensor(self, op: str, operation: Any) -> bool:
        """Whether the op makes its result where its operand is, without a way to say where."""
        if not private.returns_tensors(operation) or has_argument(operation, "device"):
            return False
        spec = self.registry.find(op)
        if spec is None or not spec.is_a(Trait.FACTORY):
            raise LoweringError(
                f"{op} is said to use only the shape of an operand, but cannot run without its data",
                why="it takes no device and is no factory",
            )
        return True

    def stand_in(self, graph: Graph, node: Node, value: Value, *, on_device: bool = False) -> str:
        """A tensor without bytes for an operand of which only the shape matters; on the meta device or on its own."""
        where = device_of(graph, value) if on_device else "meta"
        if not all(n.is_constant for n in (*value.shape, *value.strides)):
            if on_device:
                raise LoweringError(
                    f"{node.op} needs a stand-in for {value.name}, whose size is known only as the program runs",
                    where=node.source.location or None,
                )
            options = f"dtype=torch.{value.dtype}, device={self.device(where)}"
            return f"torch.empty_strided({self.sizes(value.shape)}, {self.sizes(value.strides)}, {options})"
        shape = tuple(n.constant_value() for n in value.shape)
        strides = tuple(n.constant_value() for n in value.strides)
        dtype = getattr(torch, value.dtype)
        tensor = torch.empty_strided(shape, strides, dtype=dtype, device=where)
        if on_device:
            tensor.untyped_storage().resize_(0)
        return self.bind(f"shape_of_{value.name}", tensor, (shape, strides, dtype, where))

    def _literal(self, arg: Arg, node: Node) -> str:
        if isinstance(arg, Named):
            return self.device(arg.name) if arg.family == "device" else f"torch.{arg.name}"
        if isinstance(arg, SizeExpr):
            return self.size(arg, node)
        if isinstance(arg, float) and not math.isfinite(arg):
            return f'float("{arg}")'
        return repr(arg)

    def _constant(self, graph: Graph, node: Node) -> str:
        data, shape, dtype, device = node.args
        if not (isinstance(data, tuple) and isinstance(shape, tuple) and isinstance(device, Named)):
            raise LoweringError(
                "a constant without numbers, shape or device", where=node.source.location or None
            )
        extents = [SizeExpr.const(n) if isinstance(n, int) else n for n in shape]
        sizes = self.sizes([n for n in extents if isinstance(n, SizeExpr)], node)
        fixed = [n.constant_value() for n in extents if isinstance(n, SizeExpr) and n.is_constant]
        is_fixed = len(fixed) == len(extents)
        options = f"dtype={self._literal(dtype, node)}, device={self.device(device.name)}"
        if not data:
            return f"torch.empty({sizes}, {options})"
        if len(data) == 1 and not (is_fixed and math.prod(fixed) == 1):
            return f"torch.tensor({self._literal(data[0], node)}, {options}).expand({sizes})"
        if not is_fixed:
            raise LoweringError(
                f"a constant of {len(data)} numbers has a shape that changes",
                where=node.source.location or None,
                next_step="bind all dimensions before lowering",
            )
        nested = _nested(data, fixed)
        if len(data) > _LONG_LITERAL:
            value = graph.values[node.outputs[0]]
            return f"torch.tensor({self.bind(f'numbers_of_{value.name}', nested, data)}, {options})"
        return f"torch.tensor({self._numbers(nested, node)}, {options})"

    def _numbers(self, nested: Any, node: Node) -> str:
        if isinstance(nested, list):
            return f"[{', '.join(self._numbers(item, node) for item in nested)}]"
        return self._literal(nested, node)

    def size(self, size: SizeExpr | int, node: Node | None = None) -> str:
        """A size as text; see `size_text`."""
        if isinstance(size, SizeExpr):
            self.dims_used.update(dict.fromkeys(sorted(size.dims())))
        return size_text(size, self.dims, node)

    def sizes(self, sizes: Sequence[SizeExpr | int], node: Node | None = None) -> str:
        """Several sizes as the text of a list."""
        return f"[{', '.join(self.size(size, node) for size in sizes)}]"

    @staticmethod
    def _replayed(operation: Any, results: Arg, outputs: tuple[int, ...]) -> Arg:
        """Where the outputs of an op lie in what its stand-in returns."""
        own = results if isinstance(results, tuple) else (results,)
        count = private.result_count(operation)
        structure: list[Arg] = [f"unused_{k}" for k in range(count)]
        for item, position in zip(own, outputs, strict=False):
            structure[position] = item
        return structure[0] if count == 1 else tuple(structure)


def device_of(graph: Graph, value: Value) -> str:
    """Where a value lives; a host scalar on the CPU."""
    return "cpu" if value.storage is None else graph.storages[value.storage].device


def _device(graph: Graph, node: Node) -> str:
    tensors = [graph.values[v] for v in (*node.outputs, *node.inputs) if graph.values[v].storage is not None]
    return device_of(graph, tensors[0]) if tensors else "cpu"


def result_structure(node: Node) -> Arg:
    """How the outputs of a node lie in what its operation returns, as in `Node.results` but never None."""
    if node.results is not None:
        return node.results
    if len(node.outputs) == 1:
        return Ref(0)
    return tuple(Ref(slot) for slot in range(len(node.outputs)))


def _nested(data: Sequence[Any], extents: list[int]) -> Any:
    """Numbers in row-major order as nested lists."""
    if not extents:
        return data[0]
    step = len(data) // extents[0]
    return [_nested(data[at : at + step], extents[1:]) for at in range(0, len(data), step)]


def watches_by_access(graph: Graph, watches: Sequence[Watch]) -> dict[Access, list[Watch]]:
    """Watches by the version of a storage at which they copy."""
    due: dict[Access, list[Watch]] = defaultdict(list)
    for watch in watches:
        storage = graph.values[watch.value].storage
        if storage is None:
            raise LoweringError(f"{watch.name} is a number; only tensors can be copied on the way")
        due[Access(storage, watch.version)].append(watch)
    return dict(due)


def refuse_missed(due: Mapping[Access, Sequence[Watch]]) -> None:
    """Refuse watches that are left when all nodes have run."""
    for missed in due.values():
        raise LoweringError(
            f"{missed[0].name} is to be copied at version {missed[0].version}, which is never made"
        )


# Views that read the same bytes as other numbers, and how a tensor is told to.
_LAZY = {"aten._conj.default": ".conj()", "aten._neg_view.default": ".neg()"}


def _is_odd(graph: Graph, value: Value, op: str) -> bool:
    """Whether an odd number of such views lies between the bytes of a value and itself."""
    odd = False
    producer = graph.producer(value.id)
    while producer is not None:
        node = graph.nodes[producer]
        if not node.inputs or graph.values[node.inputs[0]].storage != value.storage:
            break
        odd ^= node.op == op
        producer = graph.producer(node.inputs[0])
    return odd


def copy_text(graph: Graph, node: Node | None, watch: Watch, calls: CallWriter) -> str:
    """The copy of a watched value directly after the node that makes the version; None: at the beginning.

    The value itself may be deleted by then or not made yet (a view): the copy is then taken through another value on
    the same storage, one that is bound there for certain.
    """
    value = graph.values[watch.value]
    bound = graph.inputs if node is None else (*node.outputs, *node.inputs)
    if watch.value in bound:
        return f"{calls.names.variable(value)}.clone()"
    for other in (graph.values[v] for v in bound):
        if other.storage == value.storage and other.dtype == value.dtype:
            # Counted from where the other one lies: its storage may be that of an arena.
            seen = calls.names.variable(other)
            offset = f"{seen}.storage_offset() + {grouped(calls.size(value.offset - other.offset))}"
            geometry = f"{calls.sizes(value.shape)}, {calls.sizes(value.strides)}, {offset}"
            views = "".join(
                method
                for op, method in _LAZY.items()
                if _is_odd(graph, value, op) != _is_odd(graph, other, op)
            )
            return f"{seen}.as_strided({geometry}){views}.clone()"
    raise LoweringError(
        f"{watch.name} cannot be copied at version {watch.version}",
        why=f"nothing of dtype {value.dtype} sees its storage there",
    )
