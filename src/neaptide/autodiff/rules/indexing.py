"""Derivatives of gathers and scatters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from neaptide.autodiff.call import Call, Rule
from neaptide.autodiff.emitter import INT64, Tensor


def _gather(c: Call) -> list[Tensor | None]:
    """One fixed element is put back by padding, others by adding to zeros."""
    shape, rank = c.a.shape, len(c.a.shape)
    axis = c.attribute("axis", 0) % rank
    value = c.node.inputs[1]
    assert value is not None
    if value.const_value is not None and value.const_value.size == 1 and not value.is_graph_input():
        indices = c.ints(1)
        assert indices is not None
        at = indices[0] % shape[axis]
        one = c.g.reshape([*shape[:axis], 1, *shape[axis + 1 :]])
        before, after = [0] * rank, [0] * rank
        before[axis], after[axis] = at, shape[axis] - at - 1
        return [one.pad(before, after)]
    read = len(c.b.dims)
    order = [*range(axis, axis + read), *range(axis), *range(axis + read, rank + read - 1)]
    rows = c.g.permute(order, c.y.shape)
    front = [axis, *(i for i in range(rank) if i != axis)]
    zeros = c.emitter.zeros(c.a, [shape[i] for i in front])
    places = c.b.cast(INT64).apply("Unsqueeze", c.emitter.ints([-1]))
    spread = zeros.apply("ScatterND", places, rows, reduction="add")
    return [spread.permute([front.index(i) for i in range(rank)], [shape[i] for i in front])]


def _gather_elements(c: Call) -> list[Tensor | None]:
    zeros = c.emitter.zeros(c.a)
    return [zeros.apply("ScatterElements", c.b, c.g, axis=c.attribute("axis", 0), reduction="add")]


def _gather_nd(c: Call) -> list[Tensor | None]:
    if c.attribute("batch_dims", 0):
        raise c.refusal("it has batch axes")
    return [c.emitter.zeros(c.a).apply("ScatterND", c.b, c.g, reduction="add")]


def _scatter_elements(c: Call) -> list[Tensor | None]:
    axis = c.attribute("axis", 0)
    taken = c.g.apply("GatherElements", c.b, axis=axis)
    return [_left(c, c.g.apply("ScatterElements", c.b, c.emitter.zeros(c.input(2)), axis=axis)), None, taken]


def _scatter_nd(c: Call) -> list[Tensor | None]:
    left = c.g.apply("ScatterND", c.b, c.emitter.zeros(c.input(2)))
    return [_left(c, left), None, c.g.apply("GatherND", c.b)]


def _left(c: Call, replaced: Tensor) -> Tensor:
    """The adjoint of the data: all of it where updates are added, else what they do not replace."""
    reduction = c.attribute("reduction", "none")
    if reduction not in {"none", "add"}:
        raise c.refusal(f"its reduction is {reduction!r}")
    return c.g.apply("Identity") if reduction == "add" else replaced


RULES: Final[Mapping[str, Rule]] = {
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
}
