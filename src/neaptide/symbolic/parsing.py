"""Size expressions from text: sums, products, powers and three functions of Python's own grammar."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from operator import add, mul, sub
from typing import Final

from neaptide.errors import SymbolicError
from neaptide.symbolic.size_expr import FUNCTIONS, SizeExpr, floordiv, modulo

_Function = Callable[[SizeExpr, SizeExpr], SizeExpr]
_OPERATORS: Final[Mapping[type[ast.operator], _Function]] = {
    ast.Add: add,
    ast.Sub: sub,
    ast.Mult: mul,
    ast.FloorDiv: floordiv,
    ast.Mod: modulo,
}
_UNKNOWN_CHARACTER: Final = re.compile(r"[^A-Za-z0-9_\s+\-*/%(),]")
_HIGHEST_POWER: Final = 64  # a typing error must not become a huge polynomial


def parse_size_expr(text: str) -> SizeExpr:
    """The expression that a text spells, so that `parse_size_expr(str(e)) == e`. Nothing is ever evaluated as code.

    Sums, products, powers, `//`, `%`, parentheses, `floordiv`, `mod` and `max` are known.
    """
    if found := _UNKNOWN_CHARACTER.search(text):
        raise _malformed(text, "unexpected character", found.start())
    stripped = text.strip()
    try:
        return _read(text, ast.parse(stripped, mode="eval").body, len(text) - len(text.lstrip()))
    except SyntaxError as error:
        raise _malformed(text, error.msg, max((error.offset or 1) - 1, 0)) from None
    except (RecursionError, MemoryError):
        raise _malformed(text, "nested too deeply", 0) from None


def _read(text: str, node: ast.expr, indent: int) -> SizeExpr:
    """The expression of a part of a text whose first characters are left out. Long sums take no recursion."""
    chain: list[ast.BinOp] = []
    while isinstance(node, ast.BinOp) and node.op.__class__ in _OPERATORS:
        chain.append(node)
        node = node.left
    result = _read_operand(text, node, indent)
    for part in reversed(chain):
        result = _OPERATORS[part.op.__class__](result, _read(text, part.right, indent))
    return result


def _read_operand(text: str, node: ast.expr, indent: int) -> SizeExpr:
    match node:
        case ast.Constant(value=int(number)) if number.__class__ is int:
            return SizeExpr.const(number)
        case ast.Name(id=name):
            return SizeExpr.dim(name)
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_read(text, inner, indent)
        case ast.BinOp(op=ast.Pow(), left=base, right=ast.Constant(value=int(power))) if (
            power <= _HIGHEST_POWER
        ):
            result, factor = SizeExpr.const(1), _read(text, base, indent)
            for _ in range(power):
                result = result * factor
            return result
        case ast.BinOp(op=ast.Pow(), right=power):
            raise _malformed(text, f"expected a power up to {_HIGHEST_POWER}", indent + power.col_offset)
        case ast.Call(func=ast.Name(id=name), args=[left, right], keywords=[]) if name in FUNCTIONS:
            return FUNCTIONS[name](_read(text, left, indent), _read(text, right, indent))
    found = ast.get_source_segment(text.strip(), node)
    raise _malformed(text, f"unexpected {found!r}", indent + node.col_offset)


def _malformed(text: str, what: str, position: int) -> SymbolicError:
    return SymbolicError(f"malformed size expression: {what} at column {position + 1}", where=repr(text))
