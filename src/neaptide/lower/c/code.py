"""The text of a C file while it is written: kernels, tables of numbers, constant arrays, and the lines of the function."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib.resources import files
from typing import Final

import numpy as np
from numpy.typing import NDArray

from neaptide.errors import LoweringError
from neaptide.ir.values import DTYPE_WORDS
from neaptide.lower.c.views import C_TYPES, Place, View, joined_axes

MOST_AXES: Final = 8
"""`NT_MAX_AXES` of the kernels."""
_NEEDS: Final = {
    "conv": ("ceil_div", "least"),
    "conv_transpose": ("ceil_div", "least"),
    "normalize": ("least",),
    "qconv": ("round_to",),
    "qmatmul": ("round_to", "walk"),
    "qmean": ("round_to",),
    **dict.fromkeys(
        ("gather_elements", "map1", "map2", "map3", "matmul", "reduce", "scatter_elements"), ("walk",)
    ),
}
_MOST_INT: Final = 1 << 31
_PER_LINE: Final = 24
_SPECIAL: Final = {"nan": "NAN", "inf": "INFINITY", "-inf": "-INFINITY"}
_WORD: Final = re.compile(r"[A-Za-z_]\w*")


class Code:
    """Collects what a C file needs, each piece once."""

    def __init__(self) -> None:
        self.kernels: dict[str, None] = {}
        self.arrays: dict[str, None] = {}
        self.lines: list[str] = []
        self.needed: set[str] = set()  # arrays that are in the file although no line names them
        self.indent = 1
        self._constants: dict[str, tuple[NDArray[np.generic], bool]] = {}
        self._names: dict[tuple[str, bytes], str] = {}
        self._tables: dict[tuple[str, tuple[float, ...]], str] = {}

    def line(self, text: str) -> None:
        self.lines.append("  " * self.indent + text)

    def kernel(self, template: str, **tokens: str) -> None:
        """Have a kernel of the folder `kernels`, with its types filled in."""
        for needed in _NEEDS.get(template, ()):
            self.kernel(needed)
        text = _template(template)
        for key, value in tokens.items():
            text = text.replace(f"@{key}@", value)
        self.kernels.setdefault(text)

    def table(self, numbers: Iterable[int]) -> str:
        """The name of a constant array with these 32-bit integers."""
        row = tuple(int(number) for number in numbers)
        if any(not -_MOST_INT <= number < _MOST_INT for number in row):
            raise LoweringError(
                "a tensor has 2^31 elements or more", next_step="the C target takes smaller ones"
            )
        return self._table("int32_t", row, str)

    def floats(self, numbers: Iterable[float]) -> str:
        """The name of a constant array with these 32-bit floats."""
        return self._table("float", tuple(float(number) for number in numbers), float_text)

    def _table(self, c_type: str, row: tuple[float, ...], text: object) -> str:
        key = c_type, row
        if key not in self._tables:
            assert callable(text)
            self._tables[key] = f"p{len(self._tables)}"
            numbers = ", ".join(map(text, row))
            self.arrays[f"static const {c_type} {self._tables[key]}[] = {{{numbers}}};"] = None
        return self._tables[key]

    def constant(self, name: str, array: NDArray[np.generic], *, is_variable: bool = False) -> View:
        """A static array; constant, unless the program updates it.

        It is in the file if some line names it, and constant arrays of equal bytes are one.
        """
        dtype = str(array.dtype)
        if dtype not in C_TYPES:
            raise LoweringError(
                f"weight {name} has the element type {dtype}, which the C target does not take"
            )
        if not is_variable:
            name = self._names.setdefault((dtype, array.tobytes()), name)
        self._constants.setdefault(name, (array, is_variable))
        return View.dense(Place(name, is_bytes=False), dtype, array.shape)

    def used_constants(self) -> Iterator[tuple[str, NDArray[np.generic], bool]]:
        """Name and numbers of the arrays that lines name, and whether the program updates them."""
        named = self.needed.union(*(_WORD.findall(line) for line in self.lines))
        for name, (array, is_variable) in self._constants.items():
            if name in named:
                yield name, array, is_variable

    def definitions(self) -> Iterator[str]:
        """The text of the arrays that lines name."""
        for name, array, is_variable in self.used_constants():
            dtype = str(array.dtype)
            head = f"static {'' if is_variable else 'const '}{C_TYPES[dtype]} {name}[{max(array.size, 1)}]"
            numbers = "\n".join(_rows(array, dtype))
            yield f"{head} = {{\n{numbers}}};"

    def scalar(self, dtype: str, value: float) -> View:
        """A constant of no axes."""
        return self.constant(f"k{len(self._constants)}", np.asarray(value, dtype=dtype))

    def call(self, kernel: str, *arguments: str) -> None:
        self.line(f"{kernel}({', '.join(arguments)});")


def element_wise(
    code: Code, name: str, expression: str, operands: Sequence[View], result: View, *scalars: float
) -> None:
    """A call of the kernel that computes an expression of `a`, `b`, `c` for each element; operands are broadcast."""
    if result.numel == 0:
        return
    views = [*(operand.broadcast(result.dims) for operand in operands), result]
    extents, steps = joined_axes(result.dims, [view.strides for view in views])
    if len(extents) > MOST_AXES:
        raise LoweringError(
            f"{name} over {len(extents)} axes that cannot be joined", why=f"the most are {MOST_AXES}"
        )
    tags = "_".join(DTYPE_WORDS[view.dtype] for view in views)
    kernel = f"nt_{name}_{tags}"
    types = ", ".join(view.c_type for view in views)
    code.kernel(f"map{len(operands)}")
    suffix = "" if any(view.dtype == "float64" for view in views) else "f"
    text = expression.replace("@F@", suffix)
    code.kernels.setdefault(f"/* {name} */\nNT_MAP{len(operands)}({kernel}, {types}, {text})\n")
    table = code.table([len(extents), *extents, *(step for row in steps for step in row)])
    padded = [*scalars, *([0.0] * (3 - len(operands) - len(scalars)))]
    code.call(kernel, *(view.place.text for view in views), table, *map(float_text, padded))


def copy(code: Code, source: View, target: View) -> None:
    """Elements of one tensor to another of the same shape; nothing where they are the same bytes."""
    if source != target:
        element_wise(code, "copy", "a", [source], target)


def float_text(value: float) -> str:
    """A float literal of C with exactly these 32 bits."""
    number = float(np.float32(value))
    if math.isnan(number):
        return "NAN"
    if math.isinf(number):
        return "INFINITY" if number > 0 else "-INFINITY"
    text = repr(float(f"{number:.9g}"))
    return f"{text}f"


@cache
def _template(name: str) -> str:
    return files("neaptide.lower.c").joinpath("kernels", f"{name}.c").read_text(encoding="utf-8")


def prelude() -> str:
    """What every file begins with."""
    return _template("prelude")


def _rows(array: NDArray[np.generic], dtype: str) -> Iterable[str]:
    flat = array.reshape(-1)
    if not flat.size:
        yield "0"
        return
    if dtype.startswith("float"):
        suffix = "f" if dtype == "float32" else ""
        texts = [_SPECIAL.get(text) or text + suffix for text in flat.astype("U32").tolist()]
    elif dtype == "bool":
        texts = [str(int(value)) for value in flat.tolist()]
    else:
        texts = [_integer_text(value, dtype) for value in flat.tolist()]
    for first in range(0, len(texts), _PER_LINE):
        yield ", ".join(texts[first : first + _PER_LINE]) + ","


def _integer_text(value: int, dtype: str) -> str:
    if dtype == "int64":
        return f"INT64_C({value})" if value > -(1 << 63) else "INT64_MIN"
    if dtype == "int32" and value == -(1 << 31):
        return "INT32_MIN"
    return f"UINT64_C({value})" if dtype == "uint64" else f"{value}u" if dtype == "uint32" else str(value)
