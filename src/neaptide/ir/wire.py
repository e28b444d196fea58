"""The JSON form of a graph as msgspec schemas. Ids are positions; fields with their default value are left out."""

from __future__ import annotations

from typing import Any

import msgspec

FORMAT = "neaptide.graph/1"

WireSize = int | str
"""A constant, or the text of a size expression."""

WireAccess = tuple[int, int]
"""Storage and version."""


class WireStorage(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """`ir.values.Storage`."""

    nbytes: WireSize
    device: str = "cpu"
    kind: str = "temporary"
    name: str = ""


class WireValue(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """`ir.values.Value`."""

    name: str
    dtype: str
    shape: tuple[WireSize, ...] = ()
    strides: tuple[WireSize, ...] = ()
    offset: WireSize = 0
    storage: int | None = None
    version: int = 0


class WireSource(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """`ir.nodes.Source`."""

    file: str = ""
    line: int = 0
    code: str = ""
    module: str = ""
    phase: str = ""


class WireSlice(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """`ir.nodes.SliceMap`."""

    input: int
    axis: int
    step: WireSize
    before: int = 0
    after: int = 0


class WireMerge(msgspec.Struct, forbid_unknown_fields=True):
    """`ir.nodes.MergeMap`."""

    output: int
    how: str
    axis: int


class WireLoop(msgspec.Struct, forbid_unknown_fields=True):
    """`ir.nodes.Loop`."""

    body: WireGraph
    trip_count: WireSize
    slices: tuple[WireSlice, ...]
    merges: tuple[WireMerge, ...]


class WireNode(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """`ir.nodes.Node` with its effects. Arguments are coded by `ir.serial`."""

    op: str
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}  # msgspec copies defaults
    reads: tuple[WireAccess, ...] = ()
    writes: tuple[WireAccess, ...] = ()
    rng: str | None = None
    collective: str | None = None
    host: bool = False
    source: WireSource | None = None
    regions: tuple[WireLoop, ...] = ()
    results: Any = None


class WireSegment(msgspec.Struct, forbid_unknown_fields=True):
    """`ir.graph.Segment`."""

    name: str
    start: int
    end: int


class WireDim(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """`symbolic.dims.Dim`."""

    name: str
    low: int = 0
    high: int | None = None


class WireGraph(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """`ir.graph.Graph`."""

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    storages: tuple[WireStorage, ...]
    values: tuple[WireValue, ...]
    nodes: tuple[WireNode, ...]
    segments: tuple[WireSegment, ...] = ()
    dims: tuple[WireDim, ...] = ()
    relations: tuple[tuple[WireSize, WireSize], ...] = ()


class WireFile(msgspec.Struct, forbid_unknown_fields=True):
    """The whole file."""

    format: str
    graph: WireGraph


class WireHeader(msgspec.Struct):
    """What is read first, to tell other formats apart from broken files."""

    format: str = ""
