"""Storages (the bytes) and values (tensors that see a storage at a version)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from neaptide.symbolic.size_expr import SizeExpr

_ZERO = SizeExpr.const(0)


class Kind(StrEnum):
    """What bytes are for, in the words of PyTorch's memory profiler."""

    PARAMETER = "parameter"
    BUFFER = "buffer"
    INPUT = "input"
    OPTIMIZER_STATE = "optimizer_state"
    GRADIENT = "gradient"
    ACTIVATION = "activation"
    TEMPORARY = "temporary"
    OUTPUT = "output"


DTYPE_BYTES: dict[str, int] = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "complex64": 8,
    "complex128": 16,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
    "bool": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2fnuz": 1,
    "int4": 1,
    "uint4": 1,
    "float4_e2m1": 1,
}
"""Bytes of an element; of one that is packed, of as many as fill a byte."""

PACKED: dict[str, int] = {"int4": 2, "uint4": 2, "float4_e2m1": 2}
"""Elements of a byte, of dtypes that have less than one each."""

DTYPE_WORDS: dict[str, str] = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "f8e4m3fn",
    "float8_e5m2": "f8e5m2",
    "complex64": "c64",
    "complex128": "c128",
    "int64": "i64",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "bool": "bool",
    "float8_e4m3fnuz": "f8e4m3fnuz",
    "float8_e5m2fnuz": "f8e5m2fnuz",
    "int4": "i4",
    "uint4": "u4",
    "float4_e2m1": "f4e2m1",
}
"""How the text form writes them."""


@dataclass(frozen=True, slots=True)
class Storage:
    """A block of bytes. Values that alias share one storage; a view costs nothing.

    Attributes:
        nbytes: size in bytes, as the framework allocates it (not rounded).
        device: where it lives, such as `cpu` or `cuda:0`.
        name: of the value that created it; for reports.
    """

    id: int
    nbytes: SizeExpr
    device: str = "cpu"
    kind: Kind = Kind.TEMPORARY
    name: str = ""


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor or host scalar that is produced once (SSA).

    Attributes:
        name: unique in its graph; an identifier.
        dtype: element type, a key of `DTYPE_BYTES`; for a host scalar `float64`, `int64` or `bool`.
        shape: in elements. `strides` and `offset` are in elements too.
        storage: id of the storage it sees; None for a host scalar (a Python number), which has no bytes.
        version: of the storage when the value was made; each mutation makes the next version.
    """

    id: int
    name: str
    dtype: str
    shape: tuple[SizeExpr, ...] = ()
    strides: tuple[SizeExpr, ...] = ()
    offset: SizeExpr = _ZERO
    storage: int | None = None
    version: int = 0

    @property
    def is_host_scalar(self) -> bool:
        return self.storage is None

    @property
    def numel(self) -> SizeExpr:
        """Number of elements."""
        total = SizeExpr.const(1)
        for extent in self.shape:
            total = total * extent
        return total

    @property
    def nbytes(self) -> SizeExpr:
        """Bytes of the elements it shows; its storage may be larger (a view) or smaller (an expand)."""
        return packed_bytes(self.numel, self.dtype)


def packed_bytes(count: SizeExpr, dtype: str) -> SizeExpr:
    """Bytes of some elements; where several share a byte, the last one is counted whole."""
    whole = count * DTYPE_BYTES[dtype]
    packed = PACKED.get(dtype, 1)
    return whole if packed == 1 else (whole + (packed - 1)) // packed


def contiguous_strides(shape: tuple[SizeExpr, ...]) -> tuple[SizeExpr, ...]:
    """Strides, in elements, of a row-major tensor."""
    strides: list[SizeExpr] = []
    step = SizeExpr.const(1)
    for extent in reversed(shape):
        strides.append(step)
        step = step * extent
    return tuple(reversed(strides))
