"""JSON form of a graph, `neaptide.graph/1`: ids are positions, and fields with their default value are left out."""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec

from neaptide.errors import SymbolicError, VerifyError
from neaptide.ir.graph import Graph, Segment
from neaptide.ir.nodes import Access, Arg, Effects, Loop, MergeMap, Named, Node, Ref, SliceMap, Source
from neaptide.ir.values import Kind, Storage, Value
from neaptide.ir.verify import verify
from neaptide.reading import JsonError, decode_json
from neaptide.symbolic.dims import Dim, Relation
from neaptide.symbolic.parsing import parse_size_expr
from neaptide.symbolic.size_expr import SizeExpr

FORMAT: Final = "neaptide.graph/1"
_LARGEST_JSON_INT: Final = 1 << 53  # beyond it, JSON readers in other languages round
_ZERO: Final = SizeExpr.const(0)
_NOWHERE: Final = Source()
_Accesses = tuple[tuple[int, int], ...]
_Sizes = tuple[SizeExpr, ...]


class _Record(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """What a file holds in place of a class of the graph. A size is a number, or the text of an expression."""


class _Storage(_Record):
    nbytes: SizeExpr
    device: str = "cpu"
    kind: Kind = Kind.TEMPORARY
    name: str = ""


class _Value(_Record):
    name: str
    dtype: str
    shape: _Sizes = ()
    strides: _Sizes = ()
    offset: SizeExpr = _ZERO
    storage: int | None = None
    version: int = 0


class _Loop(_Record):
    body: _Graph
    trip_count: SizeExpr
    slices: tuple[SliceMap, ...]
    merges: tuple[MergeMap, ...]


class _Node(_Record):
    """Arguments are coded by `_encoded`."""

    op: str
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}  # msgspec copies defaults
    reads: _Accesses = ()
    writes: _Accesses = ()
    rng: str | None = None
    collective: str | None = None
    host: bool = False
    source: Source = _NOWHERE
    regions: tuple[_Loop, ...] = ()
    results: Any = None


class _Graph(_Record):
    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    storages: tuple[_Storage, ...]
    values: tuple[_Value, ...]
    nodes: tuple[_Node, ...]
    segments: tuple[Segment, ...] = ()
    dims: tuple[Dim, ...] = ()
    relations: tuple[tuple[SizeExpr, SizeExpr], ...] = ()


class _File(_Record):
    format: str
    graph: _Graph


class _Header(msgspec.Struct):
    """What is read first, to tell other formats apart from broken files."""

    format: str = ""


def to_json(graph: Graph) -> bytes:
    """The graph as compact JSON; the same bytes for equal graphs. O(size)."""
    return msgspec.json.encode(_File(FORMAT, _written(graph)), enc_hook=_size)


def from_json(data: bytes) -> Graph:
    """The graph in `data`, verified.

    Raises:
        VerifyError: not JSON, another format, or a field that does not fit, with its path such as
            `$.graph.nodes[3].op`; or a graph that breaks a rule.
    """
    try:
        header = decode_json(data, _Header)
        if header.format != FORMAT:
            raise VerifyError(
                f"not a graph file of this version: format {header.format!r}",
                where="$.format",
                why=f"this version reads {FORMAT!r}",
            )
        graph = _read(decode_json(data, _File, hook=_read_size).graph, "$.graph")
        verify(graph)
    except JsonError as error:
        what, _, path = str(error).partition(" - at ")
        raise VerifyError(f"malformed graph file: {what}", where=path.strip("`") or None) from error
    except RecursionError as error:
        raise VerifyError("malformed graph file: it is nested too deeply") from error
    return graph


def _size(size: SizeExpr) -> int | str:
    return size.constant_value() if size.is_constant and _fits(size.constant_value()) else str(size)


def _fits(number: int) -> bool:
    return abs(number) <= _LARGEST_JSON_INT


def _read_size(kind: type, data: Any) -> SizeExpr:
    """The hook of msgspec for the one type of its own, which says where a `ValueError` comes from."""
    assert kind is SizeExpr
    if type(data) is int:
        return SizeExpr.const(data)
    if not isinstance(data, str):
        raise ValueError(f"{data!r} is no size")  # noqa: TRY004 - what msgspec passes on with its path
    try:
        return parse_size_expr(data)
    except SymbolicError as error:
        raise ValueError(error.what) from error


def _written(graph: Graph) -> _Graph:
    return _Graph(
        graph.name,
        graph.inputs,
        graph.outputs,
        tuple(_Storage(s.nbytes, s.device, s.kind, s.name) for s in graph.storages),
        tuple(
            _Value(v.name, v.dtype, v.shape, v.strides, v.offset, v.storage, v.version) for v in graph.values
        ),
        tuple(map(_written_node, graph.nodes)),
        graph.segments,
        graph.dims,
        tuple((r.left, r.right) for r in graph.relations),
    )


def _written_node(node: Node) -> _Node:
    effects = node.effects
    return _Node(
        node.op,
        node.inputs,
        node.outputs,
        tuple(map(_encoded, node.args)),
        {key: _encoded(arg) for key, arg in node.kwargs},
        tuple((a.storage, a.version) for a in effects.reads),
        tuple((a.storage, a.version) for a in effects.writes),
        effects.rng,
        effects.collective,
        effects.host,
        _NOWHERE if node.source == _NOWHERE else node.source,
        tuple(_Loop(_written(x.body), x.trip_count, x.slices, x.merges) for x in node.regions),
        _encoded(node.results),
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


def _read(record: _Graph, path: str) -> Graph:
    """The graph, not yet verified; an argument that cannot be read is named by its path under `path`."""
    return Graph(
        nodes=tuple(_read_node(n, i, f"{path}.nodes[{i}]") for i, n in enumerate(record.nodes)),
        values=tuple(
            Value(i, v.name, v.dtype, v.shape, v.strides, v.offset, v.storage, v.version)
            for i, v in enumerate(record.values)
        ),
        storages=tuple(Storage(i, s.nbytes, s.device, s.kind, s.name) for i, s in enumerate(record.storages)),
        inputs=record.inputs,
        outputs=record.outputs,
        segments=record.segments,
        name=record.name,
        dims=record.dims,
        relations=tuple(Relation(*sides) for sides in record.relations),
    )


def _read_node(node: _Node, number: int, path: str) -> Node:
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
        node.source,
        tuple(
            Loop(_read(x.body, f"{path}.regions[{i}].body"), x.trip_count, x.slices, x.merges)
            for i, x in enumerate(node.regions)
        ),
        _decoded(node.results, f"{path}.results"),
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
            try:
                return _read_size(SizeExpr, size)
            except ValueError as error:
                raise VerifyError(f"malformed graph file: {error}", where=path) from error
        case {"int": str(digits), **rest} if not rest and digits.removeprefix("-").isdecimal():
            return int(digits)
        case {"float": ("inf" | "-inf" | "nan") as word, **rest} if not rest:
            return math.nan if word == "nan" else float(word)
        case bool() | int() | float() | str() | None:
            return data
        case _:
            raise VerifyError(f"malformed graph file: {data!r} is no argument", where=path)
