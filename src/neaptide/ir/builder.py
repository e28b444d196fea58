"""GraphBuilder: makes graphs in program order, by hand or for a frontend.

The `add_*` methods take everything explicitly and are O(1) in the size of the graph. `storage`, `input`, `scalar` and
`node` on top of them read the declarations of the text form and fill in effects.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypedDict, Unpack

from neaptide.errors import VerifyError
from neaptide.ir.effects import CallEffects, effects_of
from neaptide.ir.graph import Graph, Segment
from neaptide.ir.loops.body import with_destinations
from neaptide.ir.nodes import (
    LOOP_OP,
    Access,
    Arg,
    Effects,
    Loop,
    MergeMap,
    Named,
    Node,
    Ref,
    SliceMap,
    Source,
)
from neaptide.ir.registry import Call, OpRegistry
from neaptide.ir.text.parser import Declaration, parse_declaration
from neaptide.ir.values import Kind, Storage, Value, contiguous_strides
from neaptide.ir.verify import verify
from neaptide.symbolic.dims import Dim, Relation
from neaptide.symbolic.size_expr import SizeExpr

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_]+")
_ZERO = SizeExpr.const(0)
_NOWHERE = Source()


class ValueId(int):
    """A value id; as an argument of `GraphBuilder.node` it means the value, where a plain int means the number."""

    __slots__ = ()


class Said(TypedDict, total=False):
    """What else `GraphBuilder.node` may be told of a node, as in `Effects` and `Node`; `rng` and `host` come from its row if not."""

    rng: str | None
    collective: str | None
    host: bool
    source: Source
    regions: Iterable[Loop]
    results: Arg


NodeArg = Arg | ValueId | Sequence["NodeArg"]


class GraphBuilder:
    """Builds a graph node by node; keeps the current version of every storage.

    >>> b = GraphBuilder("two")
    >>> x = b.input("x", (4, 8))
    >>> (y,) = b.node("toy.relu", x, outputs=["y: f32[4, 8]"])
    >>> b.output(y)
    >>> len(b.finish().nodes)
    1
    """

    def __init__(self, name: str = "", registry: OpRegistry | None = None) -> None:
        """`registry`: rows from which `node` takes effects; an op without a row needs them said."""
        self.name = name
        self.registry = registry
        self.values: list[Value] = []
        self.storages: list[Storage] = []
        self.nodes: list[Node] = []
        self._versions: list[int] = []
        self._inputs: list[int] = []
        self._outputs: list[int] = []
        self._segments: list[Segment] = []
        self._dims: list[Dim] = []
        self._relations: list[Relation] = []
        self._ids: dict[str, int] = {}
        self._names: dict[str, int] = {}  # of all values, with the number last tried for a duplicate

    # -- everything explicit

    def add_storage(
        self, nbytes: SizeExpr, device: str = "cpu", kind: Kind = Kind.TEMPORARY, name: str = ""
    ) -> int:
        """A new storage; its id. Some value must see it."""
        self.storages.append(Storage(len(self.storages), nbytes, device, kind, name))
        self._versions.append(0)
        return len(self.storages) - 1

    def add_value(
        self,
        name: str,
        dtype: str,
        shape: tuple[SizeExpr, ...] = (),
        strides: tuple[SizeExpr, ...] = (),
        offset: SizeExpr = _ZERO,
        storage: int | None = None,
    ) -> int:
        """A new value at the current version of its storage (None: a host scalar); its id.

        The name is made an identifier and unique. The value must become an input or the output of one node.
        """
        version = 0 if storage is None else self._versions[storage]
        number = len(self.values)
        unique = self.unique_name(name)
        self.values.append(Value(number, unique, dtype, shape, strides, offset, storage, version))
        self._ids[unique] = number
        return number

    def add_input(self, value: int) -> None:
        """Declare that the caller owns a value."""
        self._inputs.append(value)

    def add_node(self, node: Node, reads: Iterable[int] = (), writes: Iterable[int] = ()) -> int:
        """Appends a node; its id.

        Args:
            node: its id and the versions in its effects are not looked at. Its outputs were made by `add_value` for it;
                they see the versions after the writes.
            reads: storages whose data is needed, at their current version.
            writes: storages that are overwritten; each gets its next version.
        """
        read = tuple(Access(s, self._versions[s]) for s in dict.fromkeys(reads))
        written = []
        for storage in dict.fromkeys(writes):
            self._versions[storage] += 1
            written.append(Access(storage, self._versions[storage]))
        if written:
            for number in node.outputs:
                value = self.values[number]
                if value.storage is not None and value.version != self._versions[value.storage]:
                    self.values[number] = replace(value, version=self._versions[value.storage])
        self.nodes.append(
            replace(
                node,
                id=len(self.nodes),
                args=tuple(map(_one_nan, node.args)),
                kwargs=tuple(sorted((key, _one_nan(arg)) for key, arg in node.kwargs)),
                effects=replace(node.effects, reads=read, writes=tuple(written)),
            )
        )
        return len(self.nodes) - 1

    def current_version(self, storage: int) -> int:
        """The version that a read of a storage would see now."""
        return self._versions[storage]

    def unique_name(self, name: str) -> str:
        """`name` as an identifier that no value has yet; takes it. O(1) on average."""
        base = _NOT_IN_NAMES.sub("_", name) or "v"
        if base[0].isdigit():
            base = f"v{base}"
        chosen = base
        while chosen in self._names:
            self._names[base] = self._names.get(base, 0) + 1
            chosen = f"{base}_{self._names[base]}"
        self._names[chosen] = 0
        return chosen

    # -- convenience

    def storage(
        self, nbytes: SizeExpr | int, *, device: str = "cpu", kind: Kind = Kind.TEMPORARY, name: str = ""
    ) -> int:
        """A new storage whose size may be a plain int; its id."""
        return self.add_storage(_size(nbytes), device, kind, name)

    def input(
        self,
        name: str,
        shape: Sequence[SizeExpr | int] = (),
        dtype: str = "float32",
        kind: Kind = Kind.INPUT,
        *,
        device: str = "cpu",
        storage: int | None = None,
    ) -> ValueId:
        """A dense tensor that the caller owns, on a storage of its own unless one is given."""
        extents = tuple(map(_size, shape))
        number = self.add_value(name, dtype, extents, contiguous_strides(extents), _ZERO, None)
        value = self.values[number]
        if storage is None:
            storage = self.add_storage(value.nbytes, device, kind, value.name)
        self.values[number] = replace(value, storage=storage, version=self._versions[storage])
        self.add_input(number)
        return ValueId(number)

    def scalar(self, name: str, dtype: str = "int64") -> ValueId:
        """A host scalar that the caller owns."""
        number = self.add_value(name, dtype)
        self.add_input(number)
        return ValueId(number)

    def node(
        self,
        op: str,
        *args: NodeArg,
        outputs: Sequence[str] = (),
        kwargs: Mapping[str, NodeArg] | None = None,
        reads: Iterable[int] | None = None,
        writes: Iterable[int] | None = None,
        **said: Unpack[Said],
    ) -> tuple[ValueId, ...]:
        """A node with outputs declared as in the text form; the ids of its outputs.

        `"y: f32[4, 8]"` is a fresh output, `"v: f32[8, 4] strides(1, 8) @x"` a view of `x`, `"y: f32[4] @x"` with
        `writes=[x]` a result in place, `"n: host i64"` a host scalar. A name that is taken gets a number. The version
        in a declaration is not looked at: it is the current one.

        Args:
            *args: positional arguments; values as the `ValueId`s that this class hands out.
            reads: values whose data is needed. None: by the op's row, or else all operands, or none for a view.
            writes: values that are overwritten. None: by the op's row, or else none.
        """
        inputs: dict[int, int] = {}
        plain = tuple(_argument(arg, inputs) for arg in args)
        named = {key: _argument(arg, inputs) for key, arg in (kwargs or {}).items()}
        operands = tuple(inputs)
        made = [self._declared(parse_declaration(text)) for text in outputs]
        draft = Node(-1, op, operands, tuple(made), plain, tuple(sorted(named.items())))
        spec = self.registry.find(op) if self.registry is not None else None
        if spec is None:
            by_row = CallEffects(self._default_reads(operands, made, writes), (), None, host=False)
        else:
            by_row = effects_of(spec, Call(self, draft))
        self.add_node(
            replace(
                draft,
                effects=Effects(
                    (),
                    (),
                    said.get("rng", by_row.rng),
                    said.get("collective"),
                    said.get("host", False) or by_row.host,
                ),
                source=said.get("source", _NOWHERE),
                regions=tuple(said.get("regions", ())),
                results=said.get("results"),
            ),
            by_row.reads if reads is None else self._storages_of(reads),
            by_row.writes if writes is None else self._storages_of(writes),
        )
        return tuple(ValueId(v) for v in made)

    def loop(
        self,
        body: Graph,
        trip_count: SizeExpr | int,
        inputs: Sequence[ValueId],
        *,
        outputs: Sequence[str],
        slices: Iterable[SliceMap] = (),
        merges: Iterable[MergeMap] = (),
        source: Source = _NOWHERE,
    ) -> tuple[ValueId, ...]:
        """A loop node over `body`; input k of the body is `inputs[k]`.

        Output k of `body` is the part that merge k joins or adds, and is written as soon as it is made. The node reads
        and writes what its body reads and writes of its inputs, and draws from the random stream that its body draws from.
        """
        made = [self._declared(parse_declaration(text)) for text in outputs]
        maps = tuple(merges)
        wholes = [self.values[made[merge.output]] for merge in maps]
        results = [(whole, self.storages[whole.storage]) for whole in wholes if whole.storage is not None]
        if len(results) == len(wholes):
            body = with_destinations(body, maps, results)
        region = Loop(body, _size(trip_count), tuple(slices), maps)
        self.add_node(
            Node(
                -1,
                LOOP_OP,
                tuple(map(int, inputs)),
                tuple(made),
                tuple(Ref(slot) for slot in range(len(inputs))),
                effects=Effects(
                    (),
                    (),
                    region.first_effect("rng"),
                    region.first_effect("collective"),
                    any(part.effects.host for part in body.nodes),
                ),
                source=source,
                regions=(region,),
            ),
            self._storages_of(region.read_inputs(inputs)),
            self._storages_of(region.written_inputs(inputs)),
        )
        return tuple(ValueId(v) for v in made)

    def dim(self, name: str, low: int = 0, high: int | None = None) -> SizeExpr:
        """Declare a named dimension with its smallest and largest size, in elements; the dimension as a size."""
        self._dims.append(Dim(name, low, high))
        return SizeExpr.dim(name)

    def relation(self, left: SizeExpr | int, right: SizeExpr | int) -> None:
        """Declare that two sizes are equal for every shape."""
        self._relations.append(Relation(_size(left), _size(right)))

    def segment(self, name: str) -> None:
        """Everything since the last segment is this segment."""
        start = self._segments[-1].end if self._segments else 0
        self._segments.append(Segment(name, start, len(self.nodes)))

    def output(self, *values: int) -> None:
        """Hand values back to the caller."""
        self._outputs.extend(int(v) for v in values)

    def finish(self) -> Graph:
        """The graph, verified.

        Raises:
            VerifyError: it breaks a rule.
        """
        graph = Graph(
            tuple(self.nodes),
            tuple(self.values),
            tuple(self.storages),
            tuple(self._inputs),
            tuple(self._outputs),
            tuple(self._segments),
            self.name,
            tuple(self._dims),
            tuple(self._relations),
        )
        verify(graph)
        return graph

    def _declared(self, made: Declaration) -> int:
        if made.host:
            return self.add_value(made.name, made.dtype)
        storage: int | None = None
        if made.access is not None:
            base = self._ids.get(made.access[0])
            storage = None if base is None else self.values[base].storage
            if storage is None:
                raise VerifyError(
                    f"%{made.name} is declared as a view of @{made.access[0]}, which is no tensor"
                )
        number = self.add_value(made.name, made.dtype, made.shape, made.strides, made.offset, storage)
        if storage is None:
            value = self.values[number]
            nbytes = value.nbytes if made.nbytes is None else made.nbytes
            name = value.name if made.storage_name is None else made.storage_name
            self.values[number] = replace(
                value, storage=self.add_storage(nbytes, made.device, made.kind, name)
            )
        return number

    def _default_reads(
        self, operands: tuple[int, ...], made: list[int], writes: Iterable[int] | None
    ) -> tuple[int, ...]:
        """All operands' storages; none when every output is a view of an operand and nothing is written."""
        storages = self._storages_of(operands)
        seen = [self.values[v].storage for v in made]
        if seen and not writes and all(s in storages for s in seen):
            return ()
        return storages

    def _storages_of(self, values: Iterable[int]) -> tuple[int, ...]:
        found = (self.values[v].storage for v in values)
        return tuple(dict.fromkeys(s for s in found if s is not None))


def _size(number: SizeExpr | int) -> SizeExpr:
    return number if isinstance(number, SizeExpr) else SizeExpr.const(number)


def _argument(arg: NodeArg, inputs: dict[int, int]) -> Arg:
    """Turn value ids into references, noting each value's slot."""
    if isinstance(arg, ValueId):
        return Ref(inputs.setdefault(int(arg), len(inputs)))
    if arg is None or isinstance(arg, Ref | Named | SizeExpr | bool | int | float | str):
        return arg
    return tuple(_argument(item, inputs) for item in arg)


def _one_nan(arg: Arg) -> Arg:
    """Every NaN becomes `math.nan`, the one object, so that equal graphs compare equal."""
    if isinstance(arg, float):
        return math.nan if math.isnan(arg) else arg
    if isinstance(arg, tuple):
        return tuple(map(_one_nan, arg))
    return arg
