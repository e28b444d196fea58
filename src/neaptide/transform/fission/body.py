"""The graph of one trip: the members of a region, on parts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from neaptide.errors import RewriteError
from neaptide.ir.effects import effects_of
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import COPY_OP, FILLING_OPS, Access, Arg, Effects, Named, Node, Ref
from neaptide.ir.registry import Call, OpRegistry
from neaptide.ir.values import DTYPE_BYTES, Storage, Value, contiguous_strides
from neaptide.ops.aten.dialect import plain_terms
from neaptide.symbolic.size_expr import SizeExpr
from neaptide.transform.fission.region import Region
from neaptide.transform.fission.split import PartShapes, is_dense, same_layout

_ZERO = SizeExpr.const(0)


@dataclass(frozen=True, slots=True)
class Part:
    """What one trip makes; `output_of` is, by output of it, the position of the region's output that it is a part or a term of."""

    graph: Graph
    output_of: tuple[int, ...]


@dataclass
class PartBody:
    """The members of a region as a graph that is handed parts and hands back parts.

    Where a sum over all parts is the sum of two terms in each, its terms are handed back instead: each can be added as soon
    as it is made, as the gradients of a weight that two layers share. A part along an inner axis is not contiguous where it is
    cut out of a whole: it is copied before its first use, since the members were captured on values that are.

    `number` and `storage` lead from ids outside to ids in the body; storages that are handed over are not in it. Versions
    are put in at the end.
    """

    graph: Graph
    registry: OpRegistry
    shapes: PartShapes
    values: list[Value] = field(default_factory=list)
    storages: list[Storage] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    number: dict[int, int] = field(default_factory=dict)
    storage: dict[int, int] = field(default_factory=dict)

    def build(self, region: Region) -> Part:
        """The graph of one trip. O(size of the region)."""
        inputs = [self._input(number) for number in region.inputs]
        parts = terms_of_outputs(self.graph, region)
        left_out = {node for found in parts for node in found.additions}
        members = [self.graph.nodes[number] for number in region.members if number not in left_out]
        used_as_it_lies = {v for node in members for v in self._read_as_it_lies(node)}
        for value, number in zip(region.inputs, inputs, strict=True):
            if value in self.shapes.split.axes and value in used_as_it_lies:
                self._take_part(value, number)
        for member in members:
            self._member(member)
        outputs = tuple(self._result(value) for found in parts for value in found.terms)
        made = Graph(
            tuple(self.nodes),
            tuple(self.values),
            tuple(self.storages),
            (*inputs, *self.beside()),
            outputs,
            name="body",
        )
        positions = tuple(position for position, found in enumerate(parts) for _ in found.terms)
        return Part(_with_versions(made), positions)

    def beside(self) -> tuple[int, ...]:
        """What a trip is handed beside the operands of the region."""
        return ()

    def _result(self, value: int) -> int:
        """What is handed back for a value."""
        return self.number[value]

    def _read_as_it_lies(self, node: Node) -> tuple[int, ...]:
        """Operands that a node finds as the whole lay when it was captured. What a loop does with parts asks for nothing."""
        if node.op == COPY_OP:
            return ()
        return node.inputs[1:] if node.op in FILLING_OPS else node.inputs

    def _input(self, number: int) -> int:
        """A part of what is handed over, as it lies: a view of the whole."""
        value = self.graph.values[number]
        if value.storage is None:
            self.values.append(replace(value, id=len(self.values)))
        else:
            if number in self.shapes.split.axes and self.shapes.split.axes[number].outer > 1:
                raise RewriteError(
                    f"%{value.name} is handed to the region, and a part of it lies in several places"
                )
            block = self.graph.storages[value.storage]
            shape = self.shapes.shape(value)
            span = _span(shape, value.strides) * DTYPE_BYTES[value.dtype]
            self.storages.append(Storage(len(self.storages), span, block.device, block.kind, value.name))
            self.values.append(
                replace(
                    value,
                    id=len(self.values),
                    shape=shape,
                    offset=_ZERO,
                    storage=len(self.storages) - 1,
                    version=0,
                )
            )
        self.number[number] = len(self.values) - 1
        return self.number[number]

    def _take_part(self, number: int, handed: int) -> None:
        """Copy a part that does not lie as the same operations would have made it."""
        wanted = self.shapes.value(replace(self.graph.values[number], offset=_ZERO))
        if not same_layout(self.values[handed], wanted):
            self.number[number] = self.copied(handed, wanted)

    def copied(self, number: int, wanted: Value) -> int:
        """A contiguous copy of a value of the body."""
        here = self.values[number]
        copied = replace(wanted, strides=contiguous_strides(wanted.shape))
        if not same_layout(wanted, copied):
            raise RewriteError(
                f"a part of %{here.name} is not dense, and neither is what it is a part of",
                next_step="leave the view that makes it in the region",
            )
        made = self.fresh(f"part_of_{here.name}", copied, self.device(number))
        row_major = (("memory_format", Named("memory_format", "contiguous_format")),)
        self.append(COPY_OP, (number,), made, (Ref(0),), row_major)
        return made

    def append(
        self,
        op: str,
        inputs: tuple[int, ...],
        output: int,
        args: tuple[Arg, ...],
        kwargs: tuple[tuple[str, Arg], ...] = (),
    ) -> None:
        """Add a node of no member."""
        node = Node(len(self.nodes), op, inputs, (output,), args, kwargs)
        found = effects_of(self.registry.require(op), Call(self, node))
        reads, writes = (tuple(Access(s, 0) for s in storages) for storages in (found.reads, found.writes))
        self.nodes.append(replace(node, effects=Effects(reads, writes)))

    def device(self, number: int) -> str:
        """Where a value of the body is."""
        return self.storages[self._storage_of(number)].device

    def _storage_of(self, number: int) -> int:
        storage = self.values[number].storage
        assert storage is not None
        return storage

    def fresh(self, name: str, like: Value, device: str) -> int:
        """A value of the body on a storage of its own, that is shaped and lies like another."""
        self.storages.append(Storage(len(self.storages), like.nbytes, device, name=name))
        made = replace(
            like,
            id=len(self.values),
            name=self.untaken(name),
            offset=_ZERO,
            storage=len(self.storages) - 1,
            version=0,
        )
        self.values.append(made)
        return made.id

    def operands(self, node: Node) -> tuple[int, ...]:
        """What stands for the operands of a member, as it reads them."""
        return tuple(self.number[value] for value in node.inputs)

    def _member(self, node: Node) -> None:
        inputs = self.operands(node)
        # By storage outside, those that the node finds: two parts of one storage are handed over one by one.
        seen: dict[int | None, list[int | None]] = {}
        for value, number in zip(node.inputs, inputs, strict=True):
            seen.setdefault(self.graph.values[value].storage, []).append(self.values[number].storage)
        for storage in self.graph.created_storages(node):
            self._create(node, storage)
            seen[storage] = [self.storage[storage]]
        outputs = tuple(self._output(value, seen) for value in node.outputs)
        read, written = (
            tuple(
                dict.fromkeys(Access(s, 0) for a in found for s in seen.get(a.storage, ()) if s is not None)
            )
            for found in (node.effects.reads, node.effects.writes)
        )
        effects = replace(node.effects, reads=read, writes=written)
        made = replace(
            node,
            id=len(self.nodes),
            inputs=inputs,
            outputs=outputs,
            args=self.shapes.arguments(node),
            effects=effects,
        )
        self.nodes.append(made)
        self._true_bytes(made)

    def _create(self, node: Node, storage: int) -> None:
        """A storage of the body for one that a member makes, as large as its part."""
        block = self.graph.storages[storage]
        value = next(v for v in (self.graph.values[n] for n in node.outputs) if v.storage == storage)
        nbytes = block.nbytes
        if is_dense(value) and value.offset == _ZERO and nbytes == value.nbytes:
            nbytes = self.shapes.value(value).nbytes
        elif value.id in self.shapes.split.axes:
            nbytes = nbytes // value.shape[self.shapes.split.axes[value.id].dim] * self.shapes.extent(value)
        self.storage[storage] = len(self.storages)
        self.storages.append(replace(block, id=len(self.storages), nbytes=nbytes))

    def _true_bytes(self, node: Node) -> None:
        """Sizes of storages that are not what shapes say, from the op table."""
        spec = self.registry.find(node.op)
        if spec is None or spec.storage_bytes is None:
            return
        for position, nbytes in spec.storage_bytes(Call(self, node)).items():
            storage = self.values[node.outputs[position]].storage
            if storage is not None:
                self.storages[storage] = replace(self.storages[storage], nbytes=nbytes)

    def _output(self, number: int, seen: dict[int | None, list[int | None]]) -> int:
        whole = self.graph.values[number]
        storage = seen[whole.storage][0]
        is_made_here = whole.storage in self.storage
        value = self.shapes.value(whole) if is_made_here else self._view_of_handed(number)
        self.values.append(replace(value, id=len(self.values), storage=storage))
        self.number[number] = len(self.values) - 1
        return self.number[number]

    def _view_of_handed(self, number: int) -> Value:
        """A part of a view of what is handed over; it begins as far after what it shows as the whole does."""
        value, producer = self.graph.values[number], self.graph.producer(number)
        assert producer is not None
        node = self.graph.nodes[producer]
        shown = next(n for n in node.inputs if self.graph.values[n].storage == value.storage)
        behind = replace(value, offset=value.offset - self.graph.values[shown].offset)
        part = self.shapes.value(behind)
        return replace(part, offset=part.offset + self.values[self.number[shown]].offset)

    def untaken(self, name: str) -> str:
        """A name like this one that no value has."""
        taken = {value.name for value in (*self.graph.values, *self.values)}
        while name in taken:
            name += "_"
        return name


def _with_versions(graph: Graph) -> Graph:
    """The graph with the versions that follow from the order of its writes."""
    version = [0] * len(graph.storages)
    values = list(graph.values)
    nodes = []
    for node in graph.nodes:
        reads = tuple(Access(a.storage, version[a.storage]) for a in node.effects.reads)
        for access in node.effects.writes:
            version[access.storage] += 1
        writes = tuple(Access(a.storage, version[a.storage]) for a in node.effects.writes)
        nodes.append(replace(node, effects=replace(node.effects, reads=reads, writes=writes)))
        for number in node.outputs:
            storage = values[number].storage
            if storage is not None:
                values[number] = replace(values[number], version=version[storage])
    return replace(graph, nodes=tuple(nodes), values=tuple(values))


def _span(shape: tuple[SizeExpr, ...], strides: tuple[SizeExpr, ...]) -> SizeExpr:
    """Elements from the first to the last of a tensor."""
    last = _ZERO
    for extent, stride in zip(shape, strides, strict=True):
        last = last + (extent - 1) * stride
    return last + 1


@dataclass(frozen=True, slots=True)
class Terms:
    """What is handed back for an output of a region: values of members, the output itself where it is no sum of terms.

    `additions` are members that would have added them, and are needed for nothing else.
    """

    terms: tuple[int, ...]
    additions: frozenset[int]


def terms_of_outputs(graph: Graph, region: Region) -> tuple[Terms, ...]:
    """By output of a region, its terms: a sum may be one of two in each part, as the gradient of a weight that two layers share."""
    users = graph.consumers()
    members = frozenset(region.members)
    found = []
    for output in region.outputs:
        terms: list[int] = []
        additions: set[int] = set()
        waiting = [output]
        while waiting:
            value = waiting.pop()
            number = graph.producer(value)
            assert number is not None
            summed = plain_terms(graph, graph.nodes[number]) if output in region.sums else ()
            if value == output:
                is_used = not members.isdisjoint(users[value])
            else:
                is_used = len(users[value]) > 1 or value in region.outputs
            if summed and not is_used and all(graph.producer(term) in members for term in summed):
                additions.add(number)
                waiting += reversed(summed)
            else:
                terms.append(value)
        found.append(Terms(tuple(terms), frozenset(additions)))
    return tuple(found)
