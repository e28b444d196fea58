"""What the text form declares: a value with its storage, and all that the lines of one graph have declared so far."""

from __future__ import annotations

from dataclasses import dataclass, field

from neaptide.ir.graph import Segment
from neaptide.ir.nodes import Node
from neaptide.ir.values import DTYPE_BYTES, Kind, Storage, Value
from neaptide.symbolic.dims import Dim, Relation
from neaptide.symbolic.size_expr import SizeExpr

_ZERO = SizeExpr.const(0)


@dataclass(frozen=True, slots=True)
class Declaration:
    """A value as declared; `access` is None for one that sees a storage of its own."""

    name: str
    dtype: str
    host: bool = False
    shape: tuple[SizeExpr, ...] = ()
    strides: tuple[SizeExpr, ...] = ()
    offset: SizeExpr = _ZERO
    access: tuple[str, int] | None = None
    nbytes: SizeExpr | None = None
    device: str = "cpu"
    kind: Kind = Kind.TEMPORARY
    storage_name: str | None = None

    @property
    def dense_bytes(self) -> SizeExpr:
        """Bytes of its elements, each stored once."""
        total = SizeExpr.const(DTYPE_BYTES[self.dtype])
        for extent in self.shape:
            total = total * extent
        return total


@dataclass(slots=True)
class Scope:
    """What the lines of one graph have declared so far."""

    values: list[Value] = field(default_factory=list)
    storages: list[Storage] = field(default_factory=list)
    value_ids: dict[str, int] = field(default_factory=dict)
    storage_ids: dict[str, int] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    outputs: tuple[int, ...] = ()
    segments: list[Segment] = field(default_factory=list)
    dims: list[Dim] = field(default_factory=list)
    relations: list[Relation] = field(default_factory=list)
    value_order: list[int] | None = None
    storage_order: list[int] | None = None
