"""Fused operations: several operations that run as one kernel, and which operations may be among them.

A fused operation is called with the text of its body, a graph, and with the operands of that. What is made and used
inside takes no bytes. Equal bodies have equal texts, so that one kernel is built for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.ir.registry import Call, OpSpec, Trait
from neaptide.ir.text.parser import parse_graph

FUSED_OP: Final = "neaptide.fused.default"
"""Arguments: the text of the body, and a list of its operands. It returns the body's outputs as a list."""

_BODIES_KEPT: Final = 4096


@lru_cache(_BODIES_KEPT)
def fused_body(text: str) -> Graph:
    """The body of a fused operation. Nobody may change it: equal texts share it."""
    return parse_graph(text)


def body_of(node: Node) -> Graph:
    """The body of a node that is a fused operation."""
    assert node.op == FUSED_OP
    text = node.args[0]
    assert isinstance(text, str)
    return fused_body(text)


def _is_last(position: int) -> Callable[[Call], bool]:
    """Whether the dim at a position of the arguments is the last one of the first operand."""

    def rule(call: Call) -> bool:
        operand, dim = call.value(0), call.arg(position)
        return operand is not None and isinstance(dim, int) and dim in (-1, len(operand.shape) - 1)

    return rule


def _are_last(call: Call) -> bool:
    """Whether the dims of a reduction are the last ones, so that it takes rows."""
    operand, dims = call.value(0), call.arg(1, "dim")
    if operand is None or not isinstance(dims, tuple) or not dims:
        return False
    rank = len(operand.shape)
    found = sorted(dim % rank for dim in dims if isinstance(dim, int)) if rank else []
    return found == list(range(rank - len(dims), rank))


def _always(_call: Call) -> bool:
    return True


_LAST_OF_CALL: Final = _is_last(1)
_LAST_OF_GRADIENT: Final = _is_last(2)

_BY_ROWS: Final[Mapping[str, Callable[[Call], bool]]] = MappingProxyType(
    {
        "aten._softmax.default": _LAST_OF_CALL,
        "aten._log_softmax.default": _LAST_OF_CALL,
        "aten._safe_softmax.default": _LAST_OF_CALL,
        "aten._softmax_backward_data.default": _LAST_OF_GRADIENT,
        "aten._log_softmax_backward_data.default": _LAST_OF_GRADIENT,
        "aten.native_layer_norm.default": _always,
        "aten.native_group_norm.default": _always,
        "aten.nll_loss_forward.default": _always,
        "aten.nll_loss_backward.default": _always,
        "aten.sum.dim_IntList": _are_last,
        "aten.mean.dim": _are_last,
        "aten.amax.default": _are_last,
        "aten.amin.default": _are_last,
    }
)
"""Operations that take each row of an operand by itself, beside what work element by element."""

_SCALARS: Final = frozenset(
    f"aten.{name}{form}"
    for name in ("add", "sub", "mul", "div")
    for form in (".Tensor", ".Scalar", "_.Tensor", "_.Scalar")
) | {f"aten.{name}{form}.default" for name in ("addcdiv", "addcmul") for form in ("", "_")}
"""Operations that may be handed numbers that are known only as the program runs."""


def takes_rows(call: Call) -> bool:
    """Whether an operation takes each row of an operand by itself, and no element alone."""
    rule = _BY_ROWS.get(call.node.op)
    return rule is not None and rule(call)


def may_be_fused(spec: OpSpec, call: Call) -> bool:
    """Whether a kernel may hold the operation, by its row and its arguments."""
    op = call.node.op
    if not op.startswith("aten.") or not spec.deterministic or any(isinstance(w, str) for w in spec.writes):
        return False
    if any(value.is_host_scalar for value in call.inputs()) and op not in _SCALARS:
        return False
    return spec.is_a(Trait.ELEMENTWISE) or takes_rows(call)
