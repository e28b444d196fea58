"""JSON form of a graph (`neaptide.graph/1`) and its fingerprint."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from neaptide.errors import SymbolicError, VerifyError
from neaptide.ir.fingerprint import fingerprint
from neaptide.ir.graph import Graph, Segment
from neaptide.ir.nodes import Access, Arg, Effects, Loop, MergeMap, Named, Node, Ref, SliceMap, Source
from neaptide.ir.values import Kind, Storage, Value
from neaptide.ir.verify import verify
from neaptide.ir.wire import (
    FORMAT,
    WireDim,
    WireFile,
    WireGraph,
    WireHeader,
    WireLoop,
    WireMerge,
    WireNode,
    WireSegment,
    WireSize,
    WireSlice,
    WireSource,
    WireStorage,
    WireValue,
)
from neaptide.reading import JsonError, decode_json
from neaptide.symbolic.dims import Dim, Relation
from neaptide.symbolic.parsing import parse_size_expr
from neaptide.symbolic.size_expr import SizeExpr

__all__ = ["fingerprint", "from_json", "from_wire", "to_json", "to_wire"]

_LARGEST_JSON_INT = 1 << 53  # beyond it, JSON readers in other languages round


def to_json(graph: Graph) -> bytes:
    """The graph as compact JSON; the same bytes for equal graphs. O(size)."""
    return msgspec.json.encode(WireFile(FORMAT, to_wire(graph)))


def from_json(data: bytes) -> Graph:
    """The graph in `data`, verified.

    Raises:
        VerifyError: not JSON, another format, or a field that does not fit, with its path such as
            `$.graph.nodes[3].op`; or a graph that breaks a rule.
    """
    try:
        header = decode_json(data, WireHeader)
        if header.format != FORMAT:
            raise VerifyError(
                f"not a graph file of this version: format {header.format!r}",
                where="$.format",
                why=f"this version reads {FORMAT!r}",
            )
        graph = from_wire(decode_json(data, WireFile).graph, "$.graph")
        verify(graph)
    except JsonError as error:
        what, _, path = str(error).partition(" - at ")
        raise VerifyError(f"malformed graph file: {what}", where=path.strip("`") or None) from error
    except RecursionError as error:
        raise VerifyError("malformed graph file: it is nested too deeply") from error
    return graph


def to_wire(graph: Graph) -> WireGraph:
    """The graph as plain msgspec data, for files that hold graphs among other things."""
    return WireGraph(
        name=graph.name,
        inputs=graph.inputs,
        outputs=graph.outputs,
        storages=tuple(WireStorage(_size(s.nbytes), s.device, str(s.kind), s.name) for s in graph.storages),
        values=tuple(
            WireValue(
                v.name,
                v.dtype,
                tuple(map(_size, v.shape)),
                tuple(map(_size, v.strides)),
                _size(v.offset),
                v.storage,
                v.version,
            )
            for v in graph.values
        ),
        nodes=tuple(map(_node, graph.nodes)),
        segments=tuple(WireSegment(s.name, s.start, s.end) for s in graph.segments),
        dims=tuple(WireDim(d.name, d.low, d.high) for d in graph.dims),
        relations=tuple((_size(r.left), _size(r.right)) for r in graph.relations),
    )


def _size(size: SizeExpr) -> WireSize:
    return size.constant_value() if size.is_constant and _fits(size.constant_value()) else str(size)


def _fits(number: int) -> bool:
    return abs(number) <= _LARGEST_JSON_INT


def _node(node: Node) -> WireNode:
    effects, source = node.effects, node.source
    return WireNode(
        op=node.op,
        inputs=node.inputs,
        outputs=node.outputs,
        args=tuple(map(_encoded, node.args)),
        kwargs={key: _encoded(arg) for key, arg in node.kwargs},
        reads=tuple((a.storage, a.version) for a in effects.reads),
        writes=tuple((a.storage, a.version) for a in effects.writes),
        rng=effects.rng,
        collective=effects.collective,
        host=effects.host,
        source=None
        if source == Source()
        else WireSource(source.file, source.line, source.code, source.module, source.phase),
        regions=tuple(
            WireLoop(
                to_wire(loop.body),
                _size(loop.trip_count),
                tuple(WireSlice(s.input, s.axis, _size(s.step), s.before, s.after) for s in loop.slices),
                tuple(WireMerge(m.output, m.how, m.axis) for m in loop.merges),
            )
            for loop in node.regions
        ),
        results=_encoded(node.results),
    )


def _encoded(arg: Arg) -> Any:
    """JSON for an argument: plain constants as they are, lists as lists, the rest as one-key objects."""
    match arg:
        case Ref(slot):
            return {"ref": slot}
        case Named(family, name):
            return {"named": [family, name]}
        case SizeExpr():
            return {"size": _size(arg)}
        case tuple():
            return [_encoded(item) for item in arg]
        case bool() | str() | None:
            return arg
        case int():
            return arg if _fits(arg) else {"int": str(arg)}
        case float():
            return arg if math.isfinite(arg) else {"float": str(arg)}


def from_wire(wire: WireGraph, path: str = "$") -> Graph:
    """The graph, not yet verified.

    Raises:
        VerifyError: a size, kind or argument that cannot be read; names its path under `path`.
    """
    return Graph(
        nodes=tuple(_read_node(n, i, f"{path}.nodes[{i}]") for i, n in enumerate(wire.nodes)),
        values=tuple(_read_value(v, i, f"{path}.values[{i}]") for i, v in enumerate(wire.values)),
        storages=tuple(_read_storage(s, i, f"{path}.storages[{i}]") for i, s in enumerate(wire.storages)),
        inputs=wire.inputs,
        outputs=wire.outputs,
        segments=tuple(Segment(s.name, s.start, s.end) for s in wire.segments),
        name=wire.name,
        dims=tuple(Dim(d.name, d.low, d.high) for d in wire.dims),
        relations=tuple(
            Relation(*(_read_size(side, f"{path}.relations[{i}]") for side in sides))
            for i, sides in enumerate(wire.relations)
        ),
    )


def _read_size(size: WireSize, path: str) -> SizeExpr:
    if isinstance(size, int):
        return SizeExpr.const(size)
    try:
        return parse_size_expr(size)
    except SymbolicError as error:
        raise VerifyError(f"malformed graph file: {error.what}", where=path) from error


def _read_storage(storage: WireStorage, number: int, path: str) -> Storage:
    if storage.kind not in set(Kind):
        raise VerifyError(f"malformed graph file: unknown kind {storage.kind!r}", where=f"{path}.kind")
    nbytes = _read_size(storage.nbytes, f"{path}.nbytes")
    return Storage(number, nbytes, storage.device, Kind(storage.kind), storage.name)


def _read_value(value: WireValue, number: int, path: str) -> Value:
    return Value(
        number,
        value.name,
        value.dtype,
        tuple(_read_size(s, f"{path}.shape") for s in value.shape),
        tuple(_read_size(s, f"{path}.strides") for s in value.strides),
        _read_size(value.offset, f"{path}.offset"),
        value.storage,
        value.version,
    )


def _read_node(node: WireNode, number: int, path: str) -> Node:
    source = node.source
    return Node(
        number,
        node.op,
        node.inputs,
        node.outputs,
        tuple(_decoded(arg, f"{path}.args[{i}]") for i, arg in enumerate(node.args)),
        tuple((key, _decoded(arg, f"{path}.kwargs.{key}")) for key, arg in node.kwargs.items()),
        Effects(
            tuple(Access(*a) for a in node.reads),
            tuple(Access(*a) for a in node.writes),
            node.rng,
            node.collective,
            node.host,
        ),
        Source()
        if source is None
        else Source(source.file, source.line, source.code, source.module, source.phase),
        tuple(_read_loop(loop, f"{path}.regions[{i}]") for i, loop in enumerate(node.regions)),
        _decoded(node.results, f"{path}.results"),
    )


def _read_loop(loop: WireLoop, path: str) -> Loop:
    return Loop(
        from_wire(loop.body, f"{path}.body"),
        _read_size(loop.trip_count, f"{path}.trip_count"),
        tuple(
            SliceMap(s.input, s.axis, _read_size(s.step, f"{path}.slices"), s.before, s.after)
            for s in loop.slices
        ),
        tuple(MergeMap(m.output, m.how, m.axis) for m in loop.merges),
    )


def _decoded(data: Any, path: str) -> Arg:
    match data:
        case list():
            return tuple(_decoded(item, f"{path}[{i}]") for i, item in enumerate(data))
        case {"ref": int(slot), **rest} if not rest:
            return Ref(slot)
        case {"named": [str(family), str(name)], **rest} if not rest:
            return Named(family, name)
        case {"size": (int() | str()) as size, **rest} if not rest:
            return _read_size(size, path)
        case {"int": str(digits), **rest} if not rest and digits.removeprefix("-").isdecimal():
            return int(digits)
        case {"float": ("inf" | "-inf" | "nan") as word, **rest} if not rest:
            return math.nan if word == "nan" else float(word)
        case bool() | int() | float() | str() | None:
            return data
        case _:
            raise VerifyError(f"malformed graph file: {data!r} is no argument", where=path)
