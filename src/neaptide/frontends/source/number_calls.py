"""`int(tensor)` and `float(tensor)` in the source of a step: in a trace they give a symbol, as `tensor.item()` does.

Python itself wants a plain number of them, which no trace has. So these calls are written anew where a step is compiled
from its source. With real tensors they are what they were.
"""

from __future__ import annotations

import ast
import types
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch

from neaptide.frontends import _torch_private as private


def _symbolic(kind: type, symbol: type, holds: Callable[[torch.Tensor], bool]) -> Callable[..., Any]:
    """As `int` or `float`; of a traced tensor that holds such numbers the symbol."""

    def convert(*args: Any) -> Any:
        item: Any = args[0] if len(args) == 1 else None
        if isinstance(item, torch.Tensor) and private.is_fake(item) and holds(item):
            return item.item()
        return item if isinstance(item, symbol) else kind(*args)

    return convert


def _is_whole(item: torch.Tensor) -> bool:
    return not (item.is_floating_point() or item.is_complex() or item.dtype == torch.bool)


_CALLS: Final[Mapping[str, Callable[..., Any]]] = {
    "int": _symbolic(int, torch.SymInt, _is_whole),
    "float": _symbolic(float, torch.SymFloat, torch.Tensor.is_floating_point),
}
CELLS: Final = {f"__neaptide_{name}__": types.CellType(function) for name, function in _CALLS.items()}
"""By name in rewritten source, what it means there."""


def with_number_calls(tree: ast.FunctionDef, function: types.FunctionType) -> ast.FunctionDef:
    """The source of a function with `int(x)` and `float(x)` as calls of `CELLS`, where these names are Python's own."""
    code = function.__code__
    own = {*code.co_varnames, *code.co_cellvars, *code.co_freevars, *function.__globals__}
    found: ast.FunctionDef = _Rewriting(_CALLS.keys() - own).visit(tree)
    return found


class _Rewriting(ast.NodeTransformer):
    def __init__(self, names: set[str]) -> None:
        self._names = names

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in self._names and not node.keywords:
            node.func = ast.copy_location(ast.Name(f"__neaptide_{node.func.id}__", ast.Load()), node.func)
        return node
