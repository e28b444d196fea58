"""Training steps recorded from MAGIS's own model zoo (Chen et al., ASPLOS 2024), as graphs.

A file is one list of nodes in running order: `id`, `tag` (operation), `args` (ids), `in_shapes`, `out_shape`, `out_elems`,
`latency_ms`, `is_weight`, `attrs`, and `dim_links`: for each operand pairs of one of its dims and the dim of the result
that follows it, below 0 for a sum. Nodes with the tag `placeholder` are what the step is called with.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from neaptide.errors import UsageError
from neaptide.files.reading import JsonError, decode_json
from neaptide.ir.builder import GraphBuilder, ValueId
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Source
from neaptide.ir.registry import OpRegistry
from neaptide.ir.values import DTYPE_WORDS, Kind
from neaptide_corpus.recorded_ops import LINKS, UPDATE, registry_of

_PLACEHOLDER: Final = "placeholder"
_NORM: Final = "layer_norm"
_NORM_BACKWARD: Final = "layer_norm_bwd"
_DTYPES: Final = {2: "bfloat16", 4: "float32"}


class RecordedNode(msgspec.Struct, frozen=True):
    """A node as it is written; fields beyond these are ignored."""

    id: int
    tag: str
    args: list[int]
    in_shapes: list[list[int]]
    out_shape: list[int]
    out_elems: int
    latency_ms: float
    dim_links: list[list[tuple[int, int]]] = []
    is_weight: bool = False
    attrs: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """A recorded training step.

    Attributes:
        graph: weights and data are inputs; each node makes one value. Updates write the weights in place. What nobody
            uses is an output, as the recorded step keeps it to its end.
        registry: what the operations mean.
        seconds: by node of the graph, as recorded.
    """

    graph: Graph
    registry: OpRegistry
    seconds: tuple[float, ...]


def from_json(text: str | bytes, *, element_bytes: int = 4, name: str = "recorded") -> RecordedStep:
    """The step of a file. O(nodes).

    Args:
        text: of the file.
        element_bytes: of all numbers, 4 or 2.
        name: of the graph.

    Raises:
        UsageError: names the node that is wrong.
    """
    try:
        nodes = decode_json(text, list[RecordedNode])
    except JsonError as error:
        raise UsageError("the recorded step cannot be read", why=str(error)) from error
    return from_nodes(nodes, element_bytes=element_bytes, name=name)


def from_nodes(
    nodes: Sequence[RecordedNode], *, element_bytes: int = 4, name: str = "recorded"
) -> RecordedStep:
    """The step of a list of nodes in running order. O(nodes).

    Raises:
        UsageError: names the node that is wrong.
    """
    if element_bytes not in _DTYPES:
        raise UsageError(f"numbers of {element_bytes} bytes are not known", next_step="say 2 or 4")
    _check(nodes)
    computed = [node for node in nodes if node.tag != _PLACEHOLDER]
    registry = registry_of(f"recorded.{node.tag}" for node in computed)
    builder = GraphBuilder(name, registry)
    dtype = _DTYPES[element_bytes]
    made: dict[int, ValueId] = {}
    for node in nodes:
        if node.tag == _PLACEHOLDER:
            kind = Kind.PARAMETER if node.is_weight else Kind.INPUT
            label = node.attrs.get("name", f"input_{node.id}")
            made[node.id] = builder.input(label, node.out_shape, dtype, kind)
    phases = _phases(nodes)
    used = {read for node in nodes for read in node.args}
    for node in computed:
        op = f"recorded.{node.tag}"
        shape = ", ".join(map(str, _made_shape(node)))
        where = f" @{builder.values[made[node.args[0]]].name}" if op == UPDATE else ""
        label = re.sub(r"\W", "_", node.tag)
        (made[node.id],) = builder.node(
            op,
            *(made[read] for read in node.args),
            outputs=[f"{label}_{node.id}: {DTYPE_WORDS[dtype]}[{shape}]{where}"],
            kwargs={LINKS: _links(node)},
            source=Source(phase=phases[node.id]),
        )
    builder.output(*(made[node.id] for node in computed if node.id not in used))
    return RecordedStep(builder.finish(), registry, tuple(node.latency_ms / 1e3 for node in computed))


def _made_shape(node: RecordedNode) -> tuple[int, ...]:
    """The shape of what a node makes; statistics of a normalisation lie after its rows."""
    if node.tag != _NORM:
        return tuple(node.out_shape)
    *rows, _ = node.out_shape
    return (*rows, node.out_elems // max(math.prod(rows), 1))


def _links(node: RecordedNode) -> tuple[tuple[tuple[int, int], ...], ...]:
    """The dim links of each operand.

    Where the file has those of the first operand alone, the others of its rank follow it (backward of a softmax or a
    pool). Links of the backward of a normalisation along what is normalised are left out: its sums need all of that.
    """
    links = [tuple((dim, target) for dim, target in found) for found in node.dim_links]
    for shape in node.in_shapes[len(links) :]:
        links.append(links[0] if links and len(shape) == len(node.in_shapes[0]) else ())
    if node.tag == _NORM_BACKWARD:
        normed = node.attrs.get("norm_shape", "").count(",")
        rank = len(node.out_shape) - max(normed, 1)
        links = [tuple((dim, target) for dim, target in found if target < rank) for found in links]
    return tuple(links)


def _phases(nodes: Sequence[RecordedNode]) -> Mapping[int, str]:
    """`optimizer` for updates; `forward` for what the loss follows from; `backward` for the rest.

    Losses are the values that nobody uses, updates aside.
    """
    used = {read for node in nodes for read in node.args}
    updates = {node.id for node in nodes if f"recorded.{node.tag}" == UPDATE}
    by_id = {node.id: node for node in nodes}
    kept = [node.id for node in nodes if node.id not in used and node.id not in updates]
    stack, forward = kept, set[int]()
    while stack:
        number = stack.pop()
        if number not in forward:
            forward.add(number)
            stack.extend(by_id[number].args)
    return {
        node.id: "optimizer" if node.id in updates else "forward" if node.id in forward else "backward"
        for node in nodes
    }


def _check(nodes: Sequence[RecordedNode]) -> None:
    if not any(node.tag != _PLACEHOLDER for node in nodes):
        raise UsageError("the recorded step has no operations")
    seen: dict[int, RecordedNode] = {}
    for node in nodes:
        where = f"node {node.id} ({node.tag!r})"
        if node.id in seen:
            raise UsageError(f"two nodes have the id {node.id}")
        if any(read not in seen for read in node.args):
            raise UsageError(f"{where} reads what no node in front of it makes")
        if [seen[read].out_shape for read in node.args] != node.in_shapes and node.tag != "index_out":
            raise UsageError(f"the shapes of the operands of {where} are not those of what makes them")
        if min(node.out_shape, default=1) < 1 or node.out_elems < 1:
            raise UsageError(f"{where} makes nothing")
        if not 0.0 <= node.latency_ms < math.inf:
            raise UsageError(
                f"{where} takes {node.latency_ms} ms", why="it must be a finite number, not negative"
            )
        for shape, links in zip(node.in_shapes, node.dim_links, strict=False):
            for dim, target in links:
                if not (0 <= dim < len(shape) and target < len(node.out_shape)):
                    raise UsageError(f"{where} has the dim link {(dim, target)}, which does not exist")
        seen[node.id] = node
