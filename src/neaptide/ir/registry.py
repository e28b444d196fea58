"""OpSpec: what an operation means, one row each; and the registry that holds the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from neaptide.errors import UnknownOp
from neaptide.ir.axes import OpAxis
from neaptide.ir.nodes import Arg, Node, Ref
from neaptide.ir.values import Storage, Value
from neaptide.symbolic.size_expr import SizeExpr


class Trait(StrEnum):
    """What kind of operation it is. Transforms and planners match traits, never names."""

    ELEMENTWISE = "elementwise"
    CONTRACTION = "contraction"
    CONVOLUTION = "convolution"
    ATTENTION = "attention"
    RECURRENT = "recurrent"
    REDUCTION = "reduction"
    NORMALISATION = "normalisation"
    POOLING = "pooling"
    GATHER = "gather"
    VIEW = "view"
    COPY = "copy"
    FACTORY = "factory"
    LOSS = "loss"
    UPDATE = "update"
    HOST_SCALAR = "host_scalar"
    DATA_SIZED = "data_sized"  # how much scratch it takes depends on the numbers in its operands


class HasValues(Protocol):
    """A graph, or a builder that is making one."""

    @property
    def values(self) -> Sequence[Value]: ...

    @property
    def storages(self) -> Sequence[Storage]: ...


@dataclass(frozen=True, slots=True)
class Call:
    """A node in its graph, with its arguments by position or name: what OpSpec functions are asked about."""

    graph: HasValues
    node: Node

    def arg(self, position: int, name: str | None = None, default: Arg = None) -> Arg:
        """The argument at `position`, or keyword `name`, or `default`."""
        if position < len(self.node.args):
            return self.node.args[position]
        return self.node.kwarg(name, default) if name is not None else default

    def value(self, position: int, name: str | None = None) -> Value | None:
        """The tensor at `position`; None when the argument is absent or no tensor."""
        arg = self.arg(position, name)
        return self.graph.values[self.node.inputs[arg.slot]] if isinstance(arg, Ref) else None

    def inputs(self) -> tuple[Value, ...]:
        return tuple(self.graph.values[v] for v in self.node.inputs)

    def outputs(self) -> tuple[Value, ...]:
        return tuple(self.graph.values[v] for v in self.node.outputs)

    def output(self, position: int = 0) -> Value:
        return self.graph.values[self.node.outputs[position]]


SizeRule = Callable[[Call], SizeExpr]


def no_bytes(_call: Call) -> SizeExpr:
    """Nothing."""
    return SizeExpr.const(0)


def tensor_traffic(call: Call) -> SizeExpr:
    """Bytes of all tensors read and written once each: the roofline's traffic."""
    total = SizeExpr.const(0)
    for value in (*call.inputs(), *call.outputs()):
        if not value.is_host_scalar:
            total = total + value.nbytes
    return total


@dataclass(frozen=True, slots=True)
class Replay:
    """How an op that is not pure as written is run a second time with the same result.

    Attributes:
        op: the pure operation that stands in for it.
        positions: which of its positional arguments, in the stand-in's order; None stands for None.
        outputs: output k of the op is output `outputs[k]` of the stand-in.
        bitwise: devices on which both give the same bits.
    """

    op: str
    positions: tuple[int | None, ...]
    outputs: tuple[int, ...]
    bitwise: tuple[str, ...]

    def arguments(self, args: Sequence[Any]) -> tuple[Any, ...]:
        """What the stand-in is called with. IndexError: the op was called with fewer arguments."""
        return tuple(None if position is None else args[position] for position in self.positions)


@dataclass(frozen=True, slots=True)
class AxisRow:
    """Along which axes an operation may run in parts.

    Attributes:
        axes: those of a call. An axis that is not among them is needed whole.
        regroups: result 0 has the elements of operand 0 in row-major order, under another shape.
        linear: groups of positional arguments; with all others fixed, the results are linear in the tensors of a group
            together, so terms of a sum in their place make terms of a sum.
        shapes: positions of arguments that are the shape, or the strides, of result 0: a part has those of its own.
    """

    axes: Callable[[Call], Iterable[OpAxis]] | None = None
    regroups: bool = False
    linear: tuple[tuple[int, ...], ...] = ()
    shapes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class OpSpec:
    """One row of an op table.

    Attributes:
        writes: arguments (positions, or names of keyword arguments) whose storage it overwrites.
        writes_if: further writes that depend on the call, such as batch norm's running statistics.
        rng: it draws from a random stream. `rng_if` decides by the call (dropout with p = 0 draws nothing).
        shape_only: arguments of which only shape, dtype and device matter; they keep no storage alive.
        flops: floating-point operations of a call, a multiply-add counted as two.
        bytes_moved: memory traffic of a call in bytes.
        workspace: scratch bytes of a call, where they are known by formula.
        storage_bytes: sizes of the output storages where they are not what shape and dtype say, else None.
        deterministic: same inputs, same bits, on every run.
        replay: how it is recomputed although it is not pure.
        in_place: positions of arguments that its only result may lie on top of, where layout and dtype are the
            same: every element is read before it is written, and never again.
        axes: along which axes it may run in parts; None where nobody said, and every axis is needed whole.
    """

    name: str
    traits: frozenset[Trait] = frozenset()
    writes: tuple[int | str, ...] = ()
    writes_if: Callable[[Call], tuple[int | str, ...]] | None = None
    rng: bool = False
    rng_if: Callable[[Call], bool] | None = None
    host: bool = False
    shape_only: tuple[int | str, ...] = ()
    flops: SizeRule = no_bytes
    bytes_moved: SizeRule = tensor_traffic
    workspace: SizeRule = no_bytes
    storage_bytes: Callable[[Call], Mapping[int, SizeExpr]] | None = None
    deterministic: bool = True
    replay: Replay | None = None
    in_place: tuple[int, ...] = ()
    axes: AxisRow | None = None

    def is_a(self, trait: Trait) -> bool:
        return trait in self.traits

    def written_arguments(self, call: Call) -> tuple[int | str, ...]:
        """Arguments that this call overwrites."""
        return self.writes if self.writes_if is None else (*self.writes, *self.writes_if(call))

    def draws_random(self, call: Call) -> bool:
        """Whether this call advances a random stream."""
        return self.rng and (self.rng_if is None or self.rng_if(call))


class OpRegistry:
    """Rows by op name. Read-only once built.

    Attributes:
        bits_may_vary: operations that give other bits on every run may be repeated.

    >>> OpRegistry([OpSpec("toy.relu")]).find("toy.relu").name
    'toy.relu'
    """

    def __init__(
        self, rows: Iterable[OpSpec], *, bits_may_vary: bool = False, other: OpRegistry | None = None
    ) -> None:
        self._rows: dict[str, OpSpec] = {}
        self.bits_may_vary = bits_may_vary
        self._other = other
        for row in rows:
            if row.name in self._rows:
                raise ValueError(f"two rows for {row.name}")
            self._rows[row.name] = row

    def with_bits(self, *, may_vary: bool) -> OpRegistry:
        """The same rows, where repetitions may give other bits, or may not; one object for each."""
        if may_vary == self.bits_may_vary:
            return self
        if self._other is None:
            self._other = OpRegistry(self, bits_may_vary=may_vary, other=self)
        return self._other

    def __contains__(self, op: str) -> bool:
        return op in self._rows

    def __iter__(self) -> Iterator[OpSpec]:
        return iter(self._rows.values())

    def __len__(self) -> int:
        return len(self._rows)

    def find(self, op: str) -> OpSpec | None:
        """The row, or None for an op nobody knows: leave it alone, and say so."""
        return self._rows.get(op)

    def require(self, op: str) -> OpSpec:
        """The row; `UnknownOp` when there is none."""
        row = self._rows.get(op)
        if row is None:
            raise UnknownOp(
                f"no row for operation {op} in the op table",
                why="its aliasing, effects and costs are not known",
                next_step="such an op is left where it is: never moved across effects, never recomputed",
            )
        return row
