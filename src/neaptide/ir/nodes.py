"""Nodes: one operation each, with its arguments, effects and place in the user's source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, Union

from neaptide.symbolic.size_expr import SizeExpr

if TYPE_CHECKING:
    from neaptide.ir.graph import Graph


@dataclass(frozen=True, slots=True)
class Ref:
    """An argument that is the node's input number `slot`."""

    slot: int


@dataclass(frozen=True, slots=True)
class Named:
    """A named constant of the framework: `Named("dtype", "float32")`, `Named("device", "cpu")`.

    `family` is one of `dtype`, `device`, `layout`, `memory_format`.
    """

    family: str
    name: str


Arg: TypeAlias = Union[Ref, Named, SizeExpr, bool, int, float, str, tuple["Arg", ...], None]  # noqa: UP007 - names itself


@dataclass(frozen=True, slots=True)
class Access:
    """A storage at a version. As a read: the bytes that are needed. As a write: the version that is made."""

    storage: int
    version: int


@dataclass(frozen=True, slots=True)
class Effects:
    """What a node reads and changes beyond making its own fresh outputs.

    Attributes:
        reads: storages whose *data* it needs, at the version of that moment; an operand used only for its
            shape is not here.
        writes: existing storages that it overwrites, with the version it makes. Creating a storage is no write.
        rng: random stream that it draws from and advances, such as `cpu`; None for none.
        host: it talks to the host (reads a number back, prints), so its order among such nodes is kept.
    """

    reads: tuple[Access, ...] = ()
    writes: tuple[Access, ...] = ()
    rng: str | None = None
    collective: str | None = None
    host: bool = False

    @property
    def is_pure(self) -> bool:
        """Nothing but its outputs changes: it may be repeated or dropped."""
        return not self.writes and self.rng is None and self.collective is None and not self.host


@dataclass(frozen=True, slots=True)
class Source:
    """Where in the user's program a node comes from.

    Attributes:
        file: path as Python reports it; empty when unknown.
        line: 1-based; 0 when unknown.
        module: dotted path of the submodule, such as `transformer.h.3.mlp`.
        phase: `forward`, `backward`, `optimizer` or empty.
    """

    file: str = ""
    line: int = 0
    code: str = ""
    module: str = ""
    phase: str = ""

    @property
    def location(self) -> str:
        """`file:line`, or empty when unknown."""
        return f"{self.file}:{self.line}" if self.file else ""


@dataclass(frozen=True, slots=True)
class SliceMap:
    """Loop input `input` is handed to the body in parts along `axis`, as views; the last part may be shorter.

    Trip t is handed the elements from `t * step` on: `before` of them in front of its own `step`, and `after` after.
    So parts overlap by `before + after`, and the input is that much longer than all parts together.
    """

    input: int
    axis: int
    step: SizeExpr
    before: int = 0
    after: int = 0

    @property
    def halo(self) -> int:
        """Elements of a part that belong to its neighbours."""
        return self.before + self.after


@dataclass(frozen=True, slots=True)
class MergeMap:
    """Node output `output` is put together from parts, joined along `axis` (`concat`) or added (`sum`).

    The body writes its part into one of its inputs: a view of the joined result, or the whole sum.
    """

    output: int
    how: str
    axis: int = 0


@dataclass(frozen=True, slots=True)
class Loop:
    """A region run `trip_count` times, one trip after another.

    The body's input k is the node's input k, whole or in parts. After those come the *destinations*, one for each
    merge: the body has no outputs, it writes what it makes into its destinations, so a part can die as soon as it is
    merged. A sum begins at zero.

    Attributes:
        slices: inputs handed over in parts; all other inputs are handed over whole.
        merges: one for each destination, in order.
    """

    body: Graph
    trip_count: SizeExpr
    slices: tuple[SliceMap, ...]
    merges: tuple[MergeMap, ...]

    def read_inputs(self, inputs: Sequence[int]) -> list[int]:
        """Those of the node's inputs whose data the body reads."""
        touched = {access.storage for node in self.body.nodes for access in node.effects.reads}
        return self._inputs_on(touched, inputs)

    def written_inputs(self, inputs: Sequence[int]) -> list[int]:
        """Those of the node's inputs that the body overwrites."""
        touched = {access.storage for node in self.body.nodes for access in node.effects.writes}
        return self._inputs_on(touched, inputs)

    def first_effect(self, chain: Literal["rng", "collective"]) -> str | None:
        """The random stream or process group of the first node of the body that has one."""
        named = (getattr(node.effects, chain) for node in self.body.nodes)
        return next((name for name in named if name is not None), None)

    def _inputs_on(self, storages: set[int], inputs: Sequence[int]) -> list[int]:
        values = self.body.values
        pairs = zip(inputs, self.body.inputs, strict=False)  # destinations are no inputs of the node
        return [outer for outer, inner in pairs if values[inner].storage in storages]

    def destinations(self) -> tuple[int, ...]:
        """Values of the body that its results are written to, one for each merge."""
        return self.body.inputs[len(self.body.inputs) - len(self.merges) :]


LOOP_OP = "neaptide.loop"

PUT_OP = "neaptide.put"
"""Overwrites its first operand with its second, in the body of a loop."""

COPY_OP = "neaptide.copy"
"""A contiguous copy of its operand, in the body of a loop."""

ADD_OP = "neaptide.add"
"""Adds its second operand to its first, in the body of a loop."""

BORDER_OP = "neaptide.border.default"
"""Where the forward pass hands over to the caller, and the backward pass begins.

It takes the outputs of the forward pass and the inputs that the caller overwrites with some of them, and gives the
gradients of the outputs. What lives across it is what autograd saves.
"""

FILLING_OPS = frozenset({PUT_OP, ADD_OP})
"""What writes a part, or a term, to a destination."""


@dataclass(frozen=True, slots=True)
class Node:
    """One operation.

    Attributes:
        op: registry name such as `aten.add.Tensor`.
        inputs: value ids, in the order in which `args` and `kwargs` refer to them.
        outputs: value ids; every value has exactly one producer or is a graph input.
        args: positional arguments, `Ref`s into `inputs` among constants; nested tuples stand for lists.
        results: how `outputs` lie in what the operation returns: `Ref(k)` is output k, None a result that is
            not made (a gradient that was masked out), a tuple a list. None as a whole means the plain cases:
            one output returned as it is, several as a tuple.
    """

    id: int
    op: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    args: tuple[Arg, ...] = ()
    kwargs: tuple[tuple[str, Arg], ...] = ()
    effects: Effects = Effects()
    source: Source = Source()
    regions: tuple[Loop, ...] = ()
    results: Arg = None

    def kwarg(self, name: str, default: Arg = None) -> Arg:
        """The keyword argument `name`, or `default`."""
        return next((value for key, value in self.kwargs if key == name), default)


def operand_slots(node: Node) -> list[int | None]:
    """Places in a node's inputs by argument; None where that is no tensor."""
    return [arg.slot if isinstance(arg, Ref) else None for arg in node.args]


def result_slots(node: Node) -> list[int | None]:
    """Places in a node's outputs by result of its operation; None for one that is not made."""
    if isinstance(node.results, tuple):
        return [arg.slot if isinstance(arg, Ref) else None for arg in node.results]
    return list(range(len(node.outputs)))


def operand_values(node: Node) -> list[int | None]:
    """Value ids of a node's operands by argument; None where that is no tensor."""
    return [None if slot is None else node.inputs[slot] for slot in operand_slots(node)]


def refs(arg: Arg) -> Iterator[Ref]:
    """All references in an argument, depth first."""
    if isinstance(arg, Ref):
        yield arg
    elif isinstance(arg, tuple):
        for item in arg:
            yield from refs(item)
