"""Fingerprint: what tells programs apart, whatever their values are called and wherever they were written."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Access, Arg, Loop, Named, Node, Ref
from neaptide.symbolic.size_expr import SizeExpr

_VERSION = "neaptide.fingerprint/1"


def fingerprint(graph: Graph) -> str:
    """SHA-256 of the structure of a graph, as 64 hexadecimal digits. O(size) the first time.

    It covers operations, arguments, shapes, strides, dtypes, storages with their device and kind, effects, regions,
    inputs, outputs, the borders of segments, dims with their ranges, and relations. It does not depend on names, source locations, or the numbering of
    values and storages. The order of the nodes counts: it is the baseline.
    """
    return graph.remembered(_digest)


def _digest(graph: Graph) -> str:
    digest = hashlib.sha256(_VERSION.encode())
    for piece in _pieces(graph):
        data = piece.encode()
        digest.update(b"%d:%b" % (len(data), data))
    return digest.hexdigest()


def _pieces(graph: Graph) -> Iterator[str]:
    numbering = _Numbering(graph)
    yield f"inputs {len(graph.inputs)}"
    for value in graph.inputs:
        yield numbering.declared(value)
    for node in graph.nodes:
        yield from numbering.node(node)
    yield f"outputs {[numbering.value_of[v] for v in graph.outputs]}"
    yield f"segments {[(s.start, s.end) for s in graph.segments]}"
    if graph.dims:
        yield f"dims {sorted(map(str, graph.dims))} relations {sorted(map(str, graph.relations))}"


class _Numbering:
    """Numbers values and storages by first appearance, so that ids do not matter."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.value_of: dict[int, int] = {}
        self.storage_of: dict[int, int] = {}

    def declared(self, number: int) -> str:
        value = self.graph.values[number]
        self.value_of[number] = len(self.value_of)
        if value.storage is None:
            return f"host {value.dtype}"
        parts = [value.dtype, _sizes(value.shape), _sizes(value.strides), str(value.offset)]
        if value.storage not in self.storage_of:
            self.storage_of[value.storage] = len(self.storage_of)
            storage = self.graph.storages[value.storage]
            parts += ["new", str(storage.nbytes), repr(storage.device), str(storage.kind)]
        parts.append(f"{self.storage_of[value.storage]}.{value.version}")
        return " ".join(parts)

    def node(self, node: Node) -> Iterator[str]:
        yield node.op
        yield f"uses {[self.value_of[v] for v in node.inputs]}"
        yield f"args {','.join(map(_argument, node.args))}"
        yield f"kwargs {','.join(f'{key}={_argument(arg)}' for key, arg in node.kwargs)}"
        effects = node.effects
        yield f"reads {self.accesses(effects.reads)} writes {self.accesses(effects.writes)}"
        yield f"chains {effects.rng!r} {effects.collective!r} {effects.host}"
        yield f"makes {len(node.outputs)} returned {_argument(node.results)}"
        for value in node.outputs:
            yield self.declared(value)
        for loop in node.regions:
            yield _maps(loop)
            yield from _pieces(loop.body)

    def accesses(self, accesses: tuple[Access, ...]) -> str:
        return " ".join(f"{self.storage_of[a.storage]}.{a.version}" for a in accesses)


def _maps(loop: Loop) -> str:
    slices = [(s.input, s.axis, str(s.step), *((s.before, s.after) if s.halo else ())) for s in loop.slices]
    merges = [(m.output, m.how, m.axis) for m in loop.merges]
    return f"loop {loop.trip_count} {slices} {merges}"


def _sizes(sizes: tuple[SizeExpr, ...]) -> str:
    return f"[{','.join(map(str, sizes))}]"


def _argument(arg: Arg) -> str:
    match arg:
        case Ref(slot):
            return f"${slot}"
        case Named(family, name):
            return f"{family}:{name!r}"
        case SizeExpr():
            return f"{{{arg}}}"
        case tuple():
            return f"[{','.join(map(_argument, arg))}]"
        case _:
            return repr(arg)
