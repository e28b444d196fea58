"""Small changes of a graph of FX that keep every bit, and let more of it be freed or recomputed.

* A constant tensor in the shape of another one no longer takes that tensor.
* A batch norm in training writes its new statistics to copies of the old ones, which is what its functional form does inside.
  Its result can then be recomputed without statistics.
* The backward of such a batch norm does not take statistics that it does not read.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import fx

_ATEN: Final = torch.ops.aten
_FILLED: Final[dict[Any, tuple[int, Any]]] = {
    # Position of the number that fills it, or a number.
    _ATEN.zeros_like.default: (-1, 0),
    _ATEN.ones_like.default: (-1, 1),
    _ATEN.full_like.default: (1, None),
    _ATEN.new_zeros.default: (-1, 0),
    _ATEN.new_ones.default: (-1, 1),
    _ATEN.new_full.default: (2, None),
}
_OF_A_SIZE: Final = frozenset({_ATEN.new_zeros.default, _ATEN.new_ones.default, _ATEN.new_full.default})
_NORM: Final = _ATEN._native_batch_norm_legit.default  # noqa: SLF001 - no public name
_NORM_FUNCTIONAL: Final = _ATEN._native_batch_norm_legit_functional.default  # noqa: SLF001
_STATISTICS: Final = (3, 4)


def normal_form(module: fx.GraphModule) -> None:
    """Change a graph in place. O(nodes)."""
    for node in list(module.graph.nodes):
        if node.target in _FILLED:
            _fill(node)
        elif node.target is _NORM_FUNCTIONAL:
            _write_statistics(node)
        elif node.target is _ATEN.native_batch_norm_backward.default and node.args[7] is True:
            node.args = (*node.args[:3], None, None, *node.args[5:])


def _fill(node: fx.Node) -> None:
    """`full` in place of what takes the shape of an operand."""
    made = node.meta["val"]
    sizes = node.args[1] if node.target in _OF_A_SIZE else list(made.shape)
    if not _is_row_major(made) or any(type(n) not in (int, fx.Node) for n in _items(sizes)):
        return
    position, number = _FILLED[node.target]
    fill = number if position < 0 else node.args[position]
    options = {"dtype": made.dtype, "device": made.device, "pin_memory": False}
    _replace(node, _ATEN.full.default, (sizes, fill), options)


def _items(sizes: Any) -> list[Any]:
    return list(sizes) if isinstance(sizes, (list, tuple)) else [None]


def _is_row_major(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and tensor.is_contiguous()


def _replace(node: fx.Node, target: Callable[..., Any], args: Any, kwargs: Any) -> fx.Node:
    graph = node.graph
    with graph.inserting_before(node):
        made = graph.create_node("call_function", target, args, kwargs, name=node.name)
    made.meta = dict(node.meta)
    node.replace_all_uses_with(made)
    graph.erase_node(node)
    return made


def _write_statistics(node: fx.Node) -> None:
    """Copies of the statistics, and a batch norm that overwrites them."""
    if len(node.args) < 8 or node.args[5] is not True or node.kwargs:
        return
    graph, copies = node.graph, []
    for position in _STATISTICS:
        old = node.args[position]
        with graph.inserting_before(node):
            made = graph.create_node("call_function", _ATEN.clone.default, (old,), name=f"{node.name}_stat")
        made.meta = {**node.meta, "val": node.meta["val"][position]}
        copies.append(made)
    for user in list(node.users):
        if user.target is operator.getitem and user.args[1] in _STATISTICS:
            user.replace_all_uses_with(copies[_STATISTICS.index(int(user.args[1]))])  # type: ignore[arg-type]
            graph.erase_node(user)
    made = _replace(node, _NORM, (*node.args[:3], *copies, *node.args[5:]), {})
    made.meta["val"] = tuple(made.meta["val"][:3])
