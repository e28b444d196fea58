"""A call as plain data: everything that its cost depends on, and nothing else, so that equal calls are run once.

Names, sources and numbers in tensors are left out. Operands that share a storage are told from operands that
do not. The numbers that integer operands hold matter to some operations (an index must lie in its table); they
follow from the call itself (`index_limits`), so they need no place in the key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Final, Self

import msgspec

from neaptide.analysis.alias import is_pure_view
from neaptide.ir.dependencies import needed_inputs
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Arg, Node, Ref
from neaptide.ir.values import DTYPE_BYTES, Value
from neaptide.ops.structural import KERNELS
from neaptide.symbolic.size_expr import SizeExpr

OPAQUE_RESULTS: Final[Mapping[str, tuple[int, ...]]] = {
    "aten.mkldnn_rnn_layer.default": (3,),
    "aten._cudnn_rnn.default": (4,),
    "aten.miopen_rnn.default": (4,),
    "aten.cudnn_batch_norm.default": (3,),
    "aten._batch_norm_with_update.default": (3,),
    "aten._batch_norm_with_update_functional.default": (3,),
    "neaptide.get_rng_state.default": (0,),
    "aten._scaled_dot_product_efficient_attention.default": (2, 3),
    "aten._efficient_attention_forward.default": (2, 3),
    "aten._scaled_dot_product_flash_attention.default": (6, 7),
    "aten._flash_attention_forward.default": (2, 3),
    "aten._scaled_dot_product_cudnn_attention.default": (6, 7),
}
"""Results in a library's own format, whose size no shape rule knows, and the seeds of attention on CUDA, which lie on the host
whatever their fakes say: positions by op. What reads such an operand is given a real one, made by its producer: made-up bytes
could be read past their end, or by who cannot reach them."""


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand as bytes in memory.

    Shape, strides and offset are in elements.

    Attributes:
        offset: of the first element in `group`; kept only where it can matter.
        group: operands of one call with the same number share a storage; -1 for a host scalar.
        shape_only: its elements are not needed.
        made_by: name of the call in `OpCall.producers` that must make it, as its output `made_at`; or empty.
    """

    dtype: str
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    offset: int = 0
    group: int = -1
    device: str = ""
    shape_only: bool = False
    made_by: str = ""
    made_at: int = 0

    @property
    def is_host_scalar(self) -> bool:
        """Whether it is a Python number."""
        return self.group < 0

    @property
    def end(self) -> int:
        """Elements from the storage's start to after its last element."""
        if 0 in self.shape:
            return self.offset
        return self.offset + 1 + sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))

    @property
    def span_bytes(self) -> int:
        """Bytes that its storage must have at least."""
        return self.end * DTYPE_BYTES[self.dtype]


@dataclass(frozen=True, slots=True)
class OpCall:
    """A node's call without its graph.

    A result on the storage of operand group g has group g; fresh ones have groups of their own.

    Attributes:
        is_view: it makes no bytes and changes none.
        producers: calls that make opaque operands, by name.
    """

    op: str
    operands: tuple[Operand, ...]
    args: tuple[Arg, ...]
    kwargs: tuple[tuple[str, Arg], ...]
    results: Arg
    outputs: tuple[Operand, ...]
    is_view: bool
    is_pure: bool = True
    is_collective: bool = False
    producers: tuple[tuple[str, OpCall], ...] = ()

    @property
    def operand_bytes(self) -> int:
        """Bytes of the operands' storages, each once."""
        return sum(spans(o for o in self.operands if not o.shape_only).values())

    @property
    def output_bytes(self) -> int:
        """Bytes of the results' fresh storages as the graph knows them."""
        taken = {operand.group for operand in self.operands}
        return sum(o.span_bytes for o in self.outputs if not o.is_host_scalar and o.group not in taken)

    @property
    def devices(self) -> frozenset[str]:
        """Devices of all tensors."""
        return frozenset(o.device for o in (*self.operands, *self.outputs) if not o.is_host_scalar)


def spans(operands: Iterable[Operand]) -> dict[int, int]:
    """Bytes that the storage of each group must have at least."""
    found: dict[int, int] = {}
    for operand in operands:
        if not operand.is_host_scalar:
            found[operand.group] = max(found.get(operand.group, 0), operand.span_bytes)
    return found


def op_call(graph: Graph, node: Node, binding: Mapping[str, int] | None = None) -> OpCall:
    """What a node runs, in numbers. O(size of the node)."""
    view = is_pure_view(graph, node)
    needed = set(needed_inputs(graph, node))
    inputs = [graph.values[v] for v in node.inputs]
    members: dict[int, list[Value]] = {}
    for value in inputs:
        if value.storage is not None:
            members.setdefault(value.storage, []).append(value)
    group_of = {storage: k for k, storage in enumerate(members)}
    # Where in its storage an operand begins matters to a view with an absolute offset, and beside operands
    # that share the storage; elsewhere the many parts of one tensor are the same call.
    start = {
        storage: 0 if view else min(v.offset.evaluate(binding) for v in values)
        for storage, values in members.items()
    }

    def describe(value: Value, *, is_input: bool) -> Operand:
        if value.storage is None:
            return Operand(value.dtype)
        group = group_of.setdefault(value.storage, len(group_of))
        return Operand(
            dtype=value.dtype,
            shape=_numbers(value.shape, binding),
            strides=_numbers(value.strides, binding),
            offset=value.offset.evaluate(binding) - start.get(value.storage, 0),
            group=group,
            device=graph.storages[value.storage].device,
            shape_only=is_input and value.id not in needed,
        )

    producers: dict[str, OpCall] = {}
    operands = []
    for value in inputs:
        operand = describe(value, is_input=True)
        maker = graph.producer(value.id)
        if maker is not None and _is_opaque(graph.nodes[maker], value):
            made_by = op_call(graph, graph.nodes[maker], binding)
            name = digest(repr(made_by))
            producers[name] = made_by
            position = graph.nodes[maker].outputs.index(value.id)
            operand = replace(operand, made_by=name, made_at=position)
        operands.append(operand)
    outputs = [describe(graph.values[v], is_input=False) for v in node.outputs]
    return OpCall(
        op=KERNELS.get(node.op, node.op),
        operands=tuple(operands),
        args=tuple(_bound(a, binding) for a in node.args),
        kwargs=tuple((k, _bound(a, binding)) for k, a in node.kwargs),
        results=node.results,
        outputs=tuple(outputs),
        is_view=view,
        is_pure=node.effects.is_pure,
        is_collective=node.effects.collective is not None,
        producers=tuple(producers.items()),
    )


def digest(text: str) -> str:
    """A short name of a text; for 10^9 texts the chance of any two alike is below 10^-20."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def index_limits(call: OpCall) -> dict[int, int]:
    """For integer operands that index something: below which number their elements must stay, by slot.

    Only operations whose time depends on where the indices point are listed; for others zero is as good.
    """
    rule = _INDEX_RULES.get(call.op)
    if rule is None:
        return {}
    index_at, table_at, axes = rule
    index, table = _slot(call, index_at), _slot(call, table_at)
    limit: Arg = None
    if table is None:
        limit = call.args[table_at]
    elif shape := call.operands[table].shape:
        # Without axes the axis is an argument of the call. A loss over a single sample has its classes in the only axis.
        along = [axis for axis in (call.args[1:2] if axes is None else axes) if isinstance(axis, int)]
        limit = max(1, prod(shape[axis] if axis < len(shape) else shape[-1] for axis in along))
    return {index: limit} if index is not None and isinstance(limit, int) and limit > 0 else {}


def lengths(call: OpCall) -> dict[int, int]:
    """For integer operands that decide how large a result is: the number that they hold everywhere, by slot."""
    if call.op == "aten._ctc_loss.Tensor":
        at, table = 2, call.outputs[1].shape
    elif call.op == "aten._ctc_loss_backward.Tensor" and (kept := _slot(call, 6)) is not None:
        at, table = 3, call.operands[kept].shape
    else:
        return {}
    # The lengths of the sequences, then those of their targets.
    found = zip((_slot(call, at), _slot(call, at + 1)), (table[1], (table[2] - 1) // 2), strict=True)
    return {slot: number for slot, number in found if slot is not None}


# Position of the indices, of the tensor that they point into (or the number that bounds them), and its axes.
_INDEX_RULES: Final[Mapping[str, tuple[int, int, tuple[int, ...] | None]]] = {
    "aten.embedding.default": (1, 0, (0,)),
    "aten.embedding_dense_backward.default": (1, 2, ()),
    "aten.nll_loss_forward.default": (1, 0, (1,)),
    "aten.nll_loss_backward.default": (2, 1, (1,)),
    "aten.nll_loss2d_forward.default": (1, 0, (1,)),
    "aten.nll_loss2d_backward.default": (2, 1, (1,)),
    "aten.max_pool2d_with_indices_backward.default": (7, 1, (-2, -1)),
    "aten.gather.default": (2, 0, None),
    "aten.index_select.default": (2, 0, None),
    "aten.index_add.default": (2, 0, None),
    "aten.index_add_.default": (2, 0, None),
    "aten.scatter_add.default": (2, 0, None),
    "aten.scatter_add_.default": (2, 0, None),
}


def _slot(call: OpCall, position: int) -> int | None:
    arg = call.args[position] if position < len(call.args) else None
    return arg.slot if isinstance(arg, Ref) else None


def has_opaque_operand(graph: Graph, node: Node) -> bool:
    """Whether the call of a node names calls that make its operands, so that it does not follow from the node alone."""
    makers = ((value, graph.producer(value)) for value in node.inputs)
    return any(
        maker is not None and _is_opaque(graph.nodes[maker], graph.values[value]) for value, maker in makers
    )


def _is_opaque(maker: Node, value: Value) -> bool:
    positions = OPAQUE_RESULTS.get(maker.op, ())
    if not positions:
        return False
    output = maker.outputs.index(value.id)
    # Among results that are not made or not tensors, outputs lie elsewhere.
    return (maker.results.index(Ref(output)) if isinstance(maker.results, tuple) else output) in positions


def _numbers(sizes: tuple[SizeExpr, ...], binding: Mapping[str, int] | None) -> tuple[int, ...]:
    return tuple(size.evaluate(binding) for size in sizes)


def _bound(arg: Arg, binding: Mapping[str, int] | None) -> Arg:
    if isinstance(arg, SizeExpr):
        return arg.evaluate(binding)
    if isinstance(arg, tuple):
        return tuple(_bound(item, binding) for item in arg)
    return arg


def call_key(graph: Graph, node: Node) -> Hashable:
    """Equal for calls of equal cost, whatever the ids. O(size of the node), without making text or numbers of sizes.

    It covers the operation and its arguments, and of operands and results dtype, shape, strides, offset, device, size of
    the storage, and which of them share one.
    """
    values, storages, effects = graph.values, graph.storages, node.effects
    group_of: dict[int, int] = {}
    facts: list[Hashable] = []
    for number in (*node.inputs, *node.outputs):
        value = values[number]
        storage = value.storage
        if storage is None:
            facts.append(value.dtype)
            continue
        group = group_of.setdefault(storage, len(group_of))
        block = storages[storage]
        facts.append(
            (value.dtype, value.shape, value.strides, value.offset, group, block.nbytes, block.device)
        )
    used = (
        tuple([group_of.get(access.storage) for access in effects.reads]),
        tuple([group_of.get(access.storage) for access in effects.writes]),
        effects.rng,
        effects.collective,
        effects.host,
    )
    types = tuple(map(type, node.args))
    args = _typed(node.args) if tuple in types else (types, node.args)
    kwargs = tuple([(name, _typed(arg)) for name, arg in node.kwargs])
    return node.op, args, kwargs, node.results, len(node.inputs), tuple(facts), used, node.regions


def _typed(arg: Arg) -> Hashable:
    """An argument that is unlike another of another type: 1, 1.0 and True are equal to Python."""
    if isinstance(arg, tuple):
        return tuple([_typed(item) for item in arg])
    return arg.__class__, arg


@dataclass(frozen=True, slots=True)
class OutputFacts:
    """What a run returned at one output.

    Attributes:
        operand: slot of the operand whose storage it is in; None for bytes of its own.
        alias_of: an earlier output whose storage it shares; None for none.
    """

    nbytes: int
    operand: int | None
    alias_of: int | None
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OpRecord:
    """A call that was run alone.

    Attributes:
        seconds: median of a few runs, of a short call where it stands in a program; in memory that was touched before.
        workspace_bytes: most bytes allocated beyond operands and results.
        outputs: by position in the node's outputs; None for host scalars.
        failure: why it could not be run; empty when it was. The numbers mean nothing then.
        reference_s: of the processor, that the seconds are told at (`cost.timing.call_clock`); 0 where they are told at none.
        launch_s: of the host, to hand the call to an accelerator, whose own seconds `seconds` are; 0 on the CPU.
    """

    op: str
    seconds: float = 0.0
    workspace_bytes: int = 0
    outputs: tuple[OutputFacts | None, ...] = ()
    failure: str = ""
    reference_s: float = 0.0
    launch_s: float = 0.0

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self | None:
        """From plain data; None when it is none of ours, which costs a new measurement."""
        try:
            return msgspec.convert(dict(plain), cls)
        except msgspec.ValidationError:
            return None

    def at_clock(self, reference_s: float) -> Self:
        """The same with its seconds at another speed of the processor."""
        if not self.reference_s or not reference_s or self.reference_s == reference_s:
            return self
        return replace(self, seconds=self.seconds * reference_s / self.reference_s, reference_s=reference_s)

    @property
    def fresh_bytes(self) -> int:
        """Bytes of the storages that the call made, each once."""
        return sum(
            f.nbytes for f in self.outputs if f is not None and f.operand is None and f.alias_of is None
        )
