"""The rules that every graph keeps, checked. Each message shows the neighbourhood of the fault."""

from __future__ import annotations

import re
from collections.abc import Container
from itertools import pairwise

from neaptide.errors import VerifyError
from neaptide.ir.dim_faults import faults_of_declarations, faults_of_sizes
from neaptide.ir.graph import Graph
from neaptide.ir.loops.maps import faults_of_effects, faults_of_joins, faults_of_maps, faults_of_writes
from neaptide.ir.nodes import LOOP_OP, Access, Loop, Node, refs
from neaptide.ir.text.writer import print_node
from neaptide.ir.values import DTYPE_BYTES, Value, packed_bytes
from neaptide.symbolic.size_expr import SizeExpr

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OP = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)+")
_AROUND = 10  # nodes shown before and after a fault


def verify(graph: Graph) -> None:
    """Check that a graph keeps every rule. O(size).

    Ids are dense; every value has one producer, earlier than its uses, and a unique identifier as name; every storage
    is seen by some value; reads and writes name the version of that moment in program order and a storage of an
    input of the node; views stay inside their storage where sizes are constant; arguments refer to all inputs and no
    others; keyword arguments are sorted; loops fit their bodies, which are verified too and write to nothing but their
    destinations and what the loop says that it writes; segments partition the nodes; the
    ranges of dims are not empty, and a graph that declares dims declares all that its sizes use.

    Raises:
        VerifyError: the first broken rule, with the ten nodes before and after it.
    """
    graph.remembered(_verified)


def _verified(graph: Graph) -> bool:
    """That a graph keeps every rule."""
    everything = range(len(graph.nodes)), range(len(graph.values))
    _Verifier(graph, *everything).run()
    return True


def verify_edited(graph: Graph, nodes: Container[int], values: Container[int]) -> None:
    """Check that a graph made from a verified one keeps every rule. O(size), most of it for what has changed.

    What a node or a value is by itself is checked where it is new; what takes the rest of the graph (a use before its
    producer, two producers, a version that is not the one of the moment) is checked everywhere.

    Raises:
        VerifyError: as `verify` does.
    """
    _Verifier(graph, nodes, values).run()


class _Verifier:
    def __init__(self, graph: Graph, nodes: Container[int], values: Container[int]) -> None:
        self.graph = graph
        self.new_nodes, self.new_values = nodes, values
        self.version: dict[int, int] = {}  # of each storage that exists so far
        self.available: set[int] = set()  # values that exist so far

    def fail(self, what: str, node: Node | None = None, why: str | None = None) -> VerifyError:
        name = f" of graph {self.graph.name!r}" if self.graph.name else ""
        if node is None:
            return VerifyError(what, where=f"the inputs, outputs or tables{name}", why=why)
        lines = [f"node {node.id}{name}"]
        for other in self.graph.nodes[max(0, node.id - _AROUND) : node.id + _AROUND + 1]:
            mark = ">>" if other is node else "  "
            lines.append(f"{mark} {other.id:>5}  {print_node(self.graph, other)}")
        return VerifyError(what, where="\n    ".join(lines), why=why)

    def run(self) -> None:
        self.check_tables()
        for number in self.graph.inputs:
            self.define(number, None)
        for position, node in enumerate(self.graph.nodes):
            if node.id != position:
                raise self.fail(f"the node at position {position} has the id {node.id}")
            self.check_node(node)
        for number in self.graph.outputs:
            if number not in self.available:
                raise self.fail(f"output value {number} is made by no node and is no input")
        if len(self.available) < len(self.graph.values):
            orphan = next(v for v in self.graph.values if v.id not in self.available)
            raise self.fail(f"value %{orphan.name} is neither an input nor made by a node")
        if len(self.version) < len(self.graph.storages):
            lonely = next(s for s in self.graph.storages if s.id not in self.version)
            raise self.fail(f"storage {lonely.id} is seen by no value")
        self.check_segments()
        self.check_dims()

    def check_tables(self) -> None:
        for position, storage in enumerate(self.graph.storages):
            if storage.id != position:
                raise self.fail(f"the storage at position {position} has the id {storage.id}")
            if storage.nbytes.is_constant and storage.nbytes.constant_value() < 0:
                raise self.fail(f"storage {position} has a negative size")
        names: set[str] = set()
        for position, value in enumerate(self.graph.values):
            if value.id != position:
                raise self.fail(f"the value at position {position} has the id {value.id}")
            if position in self.new_values and not _NAME.fullmatch(value.name):
                raise self.fail(f"{value.name!r} names a value, but is no identifier")
            if value.name in names:
                raise self.fail(f"two values are called %{value.name}")
            names.add(value.name)

    def define(self, number: int, node: Node | None) -> None:
        """A value comes into being, as an input (node is None) or as an output of a node."""
        if not 0 <= number < len(self.graph.values):
            raise self.fail(f"there is no value {number}", node)
        value = self.graph.values[number]
        if number in self.available:
            raise self.fail(f"value %{value.name} is made twice", node)
        self.available.add(number)
        if number in self.new_values:
            self.check_view(value, node)
        if value.storage is None:
            return
        current = self.version.setdefault(value.storage, 0)
        if value.version != current:
            raise self.fail(
                f"value %{value.name} sees version {value.version} of its storage, which is at version {current}",
                node,
            )

    def check_view(self, value: Value, node: Node | None) -> None:
        if value.dtype not in DTYPE_BYTES:
            raise self.fail(f"value %{value.name} has the unknown dtype {value.dtype!r}", node)
        if value.storage is None:
            if value.shape or value.strides or value.version:
                raise self.fail(f"host scalar %{value.name} has a shape or a version", node)
            return
        if not 0 <= value.storage < len(self.graph.storages):
            raise self.fail(f"value %{value.name} sees storage {value.storage}, which does not exist", node)
        if len(value.shape) != len(value.strides):
            raise self.fail(
                f"value %{value.name} has {len(value.shape)} axes and {len(value.strides)} strides", node
            )
        nbytes = self.graph.storages[value.storage].nbytes
        sizes = (*value.shape, *value.strides, value.offset, nbytes)
        if not all(size.is_constant for size in sizes):
            return
        shape = [extent.constant_value() for extent in value.shape]
        if any(extent < 0 for extent in shape):
            raise self.fail(f"value %{value.name} has a negative extent", node)
        if 0 in shape:
            return
        strides = [stride.constant_value() for stride in value.strides]
        first = last = value.offset.constant_value()
        for extent, stride in zip(shape, strides, strict=True):
            first += min(0, (extent - 1) * stride)
            last += max(0, (extent - 1) * stride)
        reached = packed_bytes(SizeExpr.const(last + 1), value.dtype).constant_value()
        if first < 0 or reached > nbytes.constant_value():
            raise self.fail(
                f"value %{value.name} reaches outside its storage",
                node,
                why=f"elements {first} to {last} of {DTYPE_BYTES[value.dtype]} bytes in {nbytes} bytes",
            )

    def check_node(self, node: Node) -> None:
        is_new = node.id in self.new_nodes
        if is_new and not _OP.fullmatch(node.op):
            raise self.fail(f"{node.op!r} is no name of an operation", node, why="such as aten.add.Tensor")
        if not self.available.issuperset(node.inputs):
            number = next(v for v in node.inputs if v not in self.available)
            raise self.fail(f"{self.called(number)} is used before it is made", node)
        if not is_new:
            self.pass_over(node)
            return
        self.check_arguments(node)
        self.check_effects(node)
        self.check_outputs(node)
        if (node.op == LOOP_OP) != (len(node.regions) == 1) or len(node.regions) > 1:
            raise self.fail(f"{LOOP_OP} and no other operation has exactly one region", node)
        for region in node.regions:
            self.check_loop(node, region)

    def pass_over(self, node: Node) -> None:
        """A node that is what it was, but for names: what depends on the moment is right."""
        for accesses, step in ((node.effects.reads, 0), (node.effects.writes, 1)):
            for access in accesses:
                if self.version.get(access.storage, -1) != access.version - step:
                    self.check_effects(node)
        for access in node.effects.writes:
            self.version[access.storage] = access.version
        for number in node.outputs:
            self.define(number, node)

    def called(self, number: int) -> str:
        known = 0 <= number < len(self.graph.values)
        return (
            f"value %{self.graph.values[number].name}" if known else f"value {number}, which does not exist,"
        )

    def check_arguments(self, node: Node) -> None:
        used = {ref.slot for arg in (*node.args, *(a for _, a in node.kwargs)) for ref in refs(arg)}
        if used != set(range(len(node.inputs))):
            what = f"the arguments refer to inputs {sorted(used)}, the node has inputs 0 to {len(node.inputs) - 1}"
            raise self.fail(
                what if node.inputs else f"the arguments refer to {sorted(used)} of no inputs", node
            )
        if any(not 0 <= ref.slot < len(node.outputs) for ref in refs(node.results)):
            raise self.fail(f"the results refer to outputs that the node does not have: {node.results}", node)
        keys = [key for key, _ in node.kwargs]
        if any(first >= second for first, second in pairwise(keys)):
            raise self.fail("keyword arguments are not sorted, or one is there twice", node)
        for key in keys:
            if not _NAME.fullmatch(key):
                raise self.fail(f"{key!r} is no name of an argument", node)

    def check_effects(self, node: Node) -> None:
        """Reads are of the current version and of an operand's storage; a write makes the next version."""
        operands = {self.graph.values[v].storage for v in node.inputs}
        for verb, accesses in (("reads", node.effects.reads), ("writes", node.effects.writes)):
            if len({a.storage for a in accesses}) < len(accesses):
                raise self.fail(f"the node {verb} a storage twice", node)
            for access in accesses:
                if access.storage not in self.version:
                    raise self.fail(
                        f"the node {verb} storage {access.storage}, which does not exist yet", node
                    )
                if access.storage not in operands:
                    raise self.fail(f"the node {verb} {self.label(access)}, which no input of it sees", node)
                expected = self.version[access.storage] + (verb == "writes")
                if access.version != expected:
                    raise self.fail(
                        f"the node {verb} {self.label(access)}, expected version {expected}", node
                    )
        for access in node.effects.writes:
            self.version[access.storage] = access.version

    def label(self, access: Access) -> str:
        return f"version {access.version} of storage {access.storage}"

    def check_outputs(self, node: Node) -> None:
        operands = {self.graph.values[v].storage for v in node.inputs}
        created: set[int | None] = {None}
        for number in node.outputs:
            known = 0 <= number < len(self.graph.values)
            storage = self.graph.values[number].storage if known else None
            if storage not in self.version:
                created.add(storage)
            self.define(number, node)
            if storage not in created and storage not in operands:
                raise self.fail(
                    f"{self.called(number)} sees an earlier storage that no input of its node sees", node
                )

    def check_loop(self, node: Node, loop: Loop) -> None:
        body = loop.body
        if any(self.graph.values[v].storage is None for v in node.outputs):
            raise self.fail("a number cannot be merged from parts", node)
        if len(body.inputs) != len(node.inputs) + len(loop.merges):
            raise self.fail(
                f"the body has {len(body.inputs)} inputs, the loop {len(node.inputs)} and {len(loop.merges)} merges",
                node,
            )
        if body.outputs:
            raise self.fail(
                "the body of the loop hands back values; it writes them to its destinations", node
            )
        if sorted(merge.output for merge in loop.merges) != list(range(len(node.outputs))):
            raise self.fail(f"the merges do not make each of the {len(node.outputs)} outputs once", node)
        if len(self.graph.created_storages(node)) < len(node.outputs):
            raise self.fail("two results of the loop share a storage, or one is no fresh storage", node)
        if loop.trip_count.is_constant and loop.trip_count.constant_value() < 1:
            raise self.fail(f"the loop has {loop.trip_count} trips", node)
        for faults in (faults_of_maps, faults_of_writes, faults_of_effects, faults_of_joins):
            for what in faults(self.graph, node, loop):
                raise self.fail(what, node)
        try:
            verify(body)
        except VerifyError as error:
            raise self.fail(f"the body of the loop breaks a rule: {error.render()}", node) from error

    def check_dims(self) -> None:
        if not self.graph.dims and not self.graph.relations:
            return
        for faults in (
            faults_of_declarations(self.graph),
            faults_of_sizes(self.graph, self.new_nodes, self.new_values),
        ):
            for what in faults:
                raise self.fail(what)

    def check_segments(self) -> None:
        segments = self.graph.segments
        if not segments:
            return
        ends = [0, *(s.end for s in segments)]
        if [s.start for s in segments] != ends[:-1] or ends[-1] != len(self.graph.nodes):
            raise self.fail("the segments do not partition the nodes in order")
        if any(s.start > s.end for s in segments):
            raise self.fail("a segment ends before it starts")
