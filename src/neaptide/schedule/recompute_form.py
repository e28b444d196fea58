"""Recompute instances as JSON: one list of nodes, each making one storage. Made from it: the step's integer problem.

Every node has `name`, `size` (bytes of what it makes), `deps` (indices of earlier nodes whose storages it reads) and
either `seconds` or `flops` and `moved` (bytes read and written); `out` (the storage must be there at the end),
`phase` (`fwd` or `bwd`) and `workspace` (scratch bytes) may be left out. Parameters and inputs are not part of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Final, TypeAlias

import msgspec

from neaptide.errors import UsageError
from neaptide.files.reading import JsonError, decode_json
from neaptide.schedule.problem import StepProblem

FLOPS_PER_SECOND: Final = 10e12
BYTES_PER_SECOND: Final = 1e12
"""Rates after `flops` and `moved`: a node takes the longer of the two."""
_FLOPS_PER_BYTE: Final = 2.0
"""What an element-wise operation on 4-byte numbers stays below."""
_PHASES: Final = {"fwd": "forward", "bwd": "backward"}
_LARGEST: Final = 1 << 62
_Bytes: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=_LARGEST)]
_Rate: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]


class InstanceNode(msgspec.Struct, frozen=True):
    """A node as it is written; fields beyond these are ignored."""

    name: str
    size: _Bytes
    deps: list[int]
    flops: _Rate = 0.0
    moved: _Rate = 0.0
    seconds: _Rate | None = None
    out: bool = False
    phase: str = ""
    workspace: _Bytes = 0


def from_json(text: str | bytes) -> StepProblem:
    """The problem of an instance."""
    try:
        nodes = decode_json(text, list[InstanceNode])
    except JsonError as error:
        raise UsageError("the recompute instance cannot be read", why=str(error)) from error
    return from_nodes(nodes)


def from_nodes(nodes: Sequence[InstanceNode]) -> StepProblem:
    """The problem of a list of nodes in running order. O(nodes + dependencies)."""
    if not nodes:
        raise UsageError("the recompute instance has no nodes")
    for index, node in enumerate(nodes):
        if wrong := [read for read in node.deps if not 0 <= read < index]:
            raise UsageError(
                f"node {index} ({node.name!r}) depends on node {wrong[0]}",
                why="a node reads only what earlier nodes make",
            )
    if sum(node.size + node.workspace for node in nodes) >= _LARGEST:
        raise UsageError("the sizes of the recompute instance are too large together")
    count = len(nodes)
    operands = tuple(tuple(dict.fromkeys(node.deps)) for node in nodes)
    outputs = tuple(index for index, node in enumerate(nodes) if node.out)
    each = tuple((index,) for index in range(count))
    nothing: tuple[tuple[int, ...], ...] = ((),) * count
    step = StepProblem(
        device="",
        storage_bytes=tuple(node.size for node in nodes),
        persistent_bytes=0,
        is_persistent=(False,) * count,
        created=each,
        value_storage=tuple(range(count)),
        operands=operands,
        results=each,
        views=nothing,
        writers=nothing,
        outputs=outputs,
        predecessors=tuple(tuple(sorted(reads)) for reads in operands),
        workspace=tuple(node.workspace for node in nodes),
        seconds=tuple(_seconds(node) for node in nodes),
        refusals=("",) * count,
        reads=tuple(tuple((read, 0) for read in reads) for reads in operands),
        phases=tuple(_PHASES.get(node.phase, node.phase) for node in nodes),
        storage_names=tuple(node.name for node in nodes),
        lower_bound_bytes=0,
        order_lower_bound_bytes=0,
        is_contraction=_contractions(nodes, operands),
    )
    least, in_order = step.peak_bounds(step.workspace)
    return replace(step, lower_bound_bytes=least, order_lower_bound_bytes=in_order)


def _contractions(nodes: Sequence[InstanceNode], operands: Sequence[tuple[int, ...]]) -> tuple[bool, ...]:
    """Nodes that count more operations than bytes; where none are counted, those slower per byte than the average."""
    if any(node.flops for node in nodes):
        return tuple(node.flops > _FLOPS_PER_BYTE * node.moved for node in nodes)
    touched = [
        node.size + sum(nodes[r].size for r in reads) for node, reads in zip(nodes, operands, strict=True)
    ]
    average = sum(map(_seconds, nodes)) / max(sum(touched), 1)
    return tuple(_seconds(node) > average * max(size, 1) for node, size in zip(nodes, touched, strict=True))


def _seconds(node: InstanceNode) -> float:
    if node.seconds is not None:
        return node.seconds
    return max(node.flops / FLOPS_PER_SECOND, node.moved / BYTES_PER_SECOND)
