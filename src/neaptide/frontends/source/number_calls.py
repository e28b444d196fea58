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


def _whole(*args: Any) -> Any:
    """As `int`; of a traced tensor of whole numbers the symbol."""
    item: Any = args[0] if len(args) == 1 else None
    if _is_traced(item) and not item.is_floating_point() and item.dtype != torch.bool:
        return item.item()
    return item if isinstance(item, torch.SymInt) else int(*args)


def _real(*args: Any) -> Any:
    """As `float`; of a traced tensor of floats the symbol."""
    item: Any = args[0] if len(args) == 1 else None
    if _is_traced(item) and item.is_floating_point():
        return item.item()
    return item if isinstance(item, torch.SymFloat) else float(*args)


def _is_traced(item: Any) -> bool:
    return isinstance(item, torch.Tensor) and not item.is_complex() and private.is_fake(item)


_CALLS: Final[Mapping[str, Callable[..., Any]]] = {"int": _whole, "float": _real}
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
