"""The region that is to run in parts: which nodes it keeps, what crosses its border, and why it may not be one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from neaptide.analysis.alias import alias_operand, is_pure_view
from neaptide.errors import RewriteError
from neaptide.ir.axes import Along
from neaptide.ir.dependencies import needed_inputs, predecessors
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import FILLING_OPS, Node
from neaptide.ir.registry import OpRegistry
from neaptide.transform.rewrite import refused


@dataclass(frozen=True, slots=True)
class Region:
    """A convex set of nodes that one loop can stand for.

    Attributes:
        members: ids, ascending. Views at the border are left out, and so is what nobody uses.
        views: those of the members that stay where they are as well: others use them too, but they cannot be handed over in
            parts. A view that joins dims of which the inner one is the axis, as the tokens of a batch, has a part in several
            places; what it shows can be handed over, and each part makes the view itself.
        dead: nodes, inside and after the region, whose results nobody uses; they go.
        after: nodes in front of the last member that need a result of the region, ascending; they follow the loop.
        inputs: values that the members use and that are made outside, in order of their first use.
        outputs: values that the members make and others need, ascending.
        sums: those of the outputs that are added up.
    """

    members: tuple[int, ...]
    views: frozenset[int]
    dead: tuple[int, ...]
    behind: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    sums: frozenset[int]

    @property
    def moved(self) -> tuple[int, ...]:
        """Members that are in the loop alone."""
        return tuple(number for number in self.members if number not in self.views)


def find_region(
    graph: Graph,
    registry: OpRegistry,
    nodes: Collection[int],
    axes: Mapping[int, Along],
    added_up: Collection[int] = (),
) -> Region:
    """The region of some nodes. O(size of the graph).

    A node after the region that nothing uses, and a use of no more than a shape, do not make a value leave it. Whether each
    node may run in parts, rows of the op table say (`analysis.axes`).
    """
    dead = _dead(graph, registry, set(nodes))
    inside = set(nodes) - dead
    sums = set(added_up)
    scattered = {value for value, along in axes.items() if along.outer > 1}
    _peel_last_views(graph, inside, dead, sums, scattered)
    views = _peel_first_views(graph, inside, dead, scattered)
    members = tuple(sorted(inside))
    inside -= views
    if not inside:
        raise RewriteError("nothing is left of the region but views and what nobody uses")
    moved = tuple(sorted(inside))
    fillable = _created(graph, inside) | destinations(graph)
    for number in members:
        _check_writes(graph, graph.nodes[number], fillable)
    _check_segment(graph, moved)
    return Region(
        members,
        views,
        tuple(sorted(dead)),
        _behind(graph, moved, inside, dead),
        _inputs(graph, members),
        _outputs(graph, inside, dead, axes, sums),
        frozenset(sums),
    )


def made_by(graph: Graph, nodes: Iterable[int]) -> set[int]:
    """Values that some nodes make."""
    return {value for number in nodes for value in graph.nodes[number].outputs}


def _created(graph: Graph, nodes: Iterable[int]) -> set[int]:
    """Storages that some nodes create."""
    return {storage for number in nodes for storage in graph.created_storages(graph.nodes[number])}


def _dead(graph: Graph, registry: OpRegistry, inside: Collection[int]) -> set[int]:
    """Nodes of the region, and nodes that depend on it, whose results nobody uses and that do nothing else."""
    wanted = set(graph.outputs)
    useless: set[int] = set()
    for node in reversed(graph.nodes):
        if (
            wanted.isdisjoint(node.outputs)
            and node.effects.is_pure
            and registry.find(node.op) is not None
            and not node.regions
        ):
            useless.add(node.id)
        else:
            wanted.update(node.inputs)
    reached = made_by(graph, inside)
    dead = useless & set(inside)
    for node in graph.nodes:
        if node.id in useless and not reached.isdisjoint(node.inputs):
            dead.add(node.id)
            reached.update(node.outputs)
    return dead


def _peel_last_views(
    graph: Graph, inside: set[int], dead: set[int], sums: set[int], scattered: AbstractSet[int]
) -> None:
    """Leave views outside whose results no member uses: what they show leaves the region instead.

    A view of what is scattered stays, if its result is not: that can be put together from parts.
    """
    used: set[int] = set()
    for number in sorted(inside, reverse=True):
        node = graph.nodes[number]
        gathers = not scattered.isdisjoint(node.inputs) and scattered.isdisjoint(node.outputs)
        is_last = used.isdisjoint(node.outputs) and number not in dead
        if is_pure_view(graph, node) and is_last and not gathers:
            inside.discard(number)
            for value in node.outputs:
                if value in sums:
                    storage = graph.values[value].storage
                    assert storage is not None
                    sums.discard(value)
                    sums.add(alias_operand(graph, node, storage))
        else:
            used.update(node.inputs)


def _peel_first_views(
    graph: Graph, inside: set[int], dead: Collection[int], scattered: AbstractSet[int]
) -> frozenset[int]:
    """Leave views of what is made outside there when others use them too, or when only their result has parts.

    Those stay, and are given back, whose result is scattered.
    """
    used_outside = set(graph.outputs)
    for node in graph.nodes:
        if node.id not in inside and node.id not in dead:
            used_outside.update(node.inputs)
    created = _created(graph, inside)
    candidates = [
        node
        for node in map(graph.nodes.__getitem__, sorted(inside, reverse=True))
        if is_pure_view(graph, node) and created.isdisjoint(graph.values[v].storage for v in node.inputs)
    ]
    shared: set[int] = set()
    count = -1
    while count != len(inside) - len(
        shared
    ):  # a view of a view is seen to before what it shows, and after it
        count = len(inside) - len(shared)
        for node in candidates:
            made = made_by(graph, inside.intersection(other.id for other in candidates))
            shows_scattered = not scattered.isdisjoint(node.inputs) and made.isdisjoint(node.inputs)
            is_shared = not used_outside.isdisjoint(node.outputs)
            if node.id in inside and (shows_scattered or is_shared):
                if shows_scattered or scattered.isdisjoint(node.outputs):
                    inside.discard(node.id)
                    shared.discard(node.id)
                else:
                    shared.add(node.id)
                used_outside.update(node.inputs)
    return frozenset(shared)


def _check_writes(graph: Graph, node: Node, fillable: Collection[int]) -> None:
    """Refuse a member that overwrites what is none of the storages that a part may write to."""
    for access in node.effects.writes:
        if access.storage not in fillable:
            raise refused(
                node, f"overwrites {graph.storages[access.storage].name}, which is made outside the region"
            )


def destinations(graph: Graph) -> frozenset[int]:
    """Storages of a body that it fills with parts and terms for the loop around, and that nobody in it reads. O(size).

    Parts of a node that writes to one write parts of it, or add their own terms.
    """
    touched: dict[int | None, set[int]] = {}  # by storage, the values that are filled
    read: set[int | None] = {None}
    for node in graph.nodes:
        filled = _filled(node)
        for value in filled:
            touched.setdefault(graph.values[value].storage, set()).add(value)
        others = [v for v in (*node.inputs, *node.outputs) if v not in filled]
        read.update(graph.values[v].storage for v in others)
    owned = graph.input_storages()
    return frozenset(s for s in owned if len(touched.get(s, ())) == 1 and s not in read)


def _filled(node: Node) -> set[int]:
    """Operands that a node fills and does not read, in the body of its loop neither."""
    found = {node.inputs[0]} if node.op in FILLING_OPS else set()
    for loop in node.regions:
        inside, body = destinations(loop.body), loop.body
        pairs = zip(node.inputs, body.inputs, strict=False)  # what is after them are the loop's own
        found |= {outer for outer, inner in pairs if body.values[inner].storage in inside}
    return found - set(node.inputs[1:]) if node.op in FILLING_OPS else found


def _check_segment(graph: Graph, members: Sequence[int]) -> None:
    for segment in graph.segments:
        here = [number for number in members if segment.start <= number < segment.end]
        if here and len(here) < len(members):
            raise RewriteError(f"the region leaves the segment {segment.name}")


def _behind(
    graph: Graph, members: Sequence[int], inside: Collection[int], dead: Collection[int]
) -> tuple[int, ...]:
    """Nodes among the members that need them."""
    before = predecessors(graph)
    cause: dict[int, int] = {}
    for number in range(members[0], members[-1] + 1):
        found = next((other for other in before[number] if other in inside or other in cause), None)
        if number in inside:
            between = next((other for other in before[number] if other in cause), None)
            if between is not None:
                raise _not_convex(graph, cause, number, between)
        elif found is not None and number not in dead:
            cause[number] = found
    return tuple(sorted(cause))


def _not_convex(graph: Graph, cause: dict[int, int], member: int, between: int) -> RewriteError:
    path = [member, between]
    while path[-1] in cause:
        path.append(cause[path[-1]])
    names = " -> ".join(f"{number} ({graph.nodes[number].op})" for number in reversed(path))
    return RewriteError(
        f"a way from the region leads back into it through nodes outside: {names}",
        where=graph.nodes[between].source.location or None,
        next_step="take the nodes in between into the region",
    )


def _inputs(graph: Graph, members: Sequence[int]) -> tuple[int, ...]:
    made = made_by(graph, members)
    used = (value for number in members for value in graph.nodes[number].inputs)
    return tuple(dict.fromkeys(value for value in used if value not in made))


def _outputs(
    graph: Graph,
    inside: Collection[int],
    dead: Collection[int],
    axes: Mapping[int, Along],
    sums: Collection[int],
) -> tuple[int, ...]:
    made = made_by(graph, inside)
    created = _created(graph, inside)
    needed = set(graph.outputs)
    used_inside: set[int] = set()
    for node in graph.nodes:
        if node.id in inside:
            used_inside.update(needed_inputs(graph, node))
        elif node.id not in dead:
            needed.update(needed_inputs(graph, node))
    outputs = tuple(sorted(made & needed))
    seen: dict[int, str] = {}
    for number in outputs:
        value = graph.values[number]
        name = f"%{value.name}"
        assert value.storage is not None
        if value.storage not in created:
            raise RewriteError(f"{name} leaves the region and lies in a storage that is made outside")
        if value.storage in seen:
            raise RewriteError(f"{seen[value.storage]} and {name} leave the region and share a storage")
        seen[value.storage] = name
        if number in sums and number in used_inside:
            raise RewriteError(f"{name} is a sum over all parts, and a member needs it before they are there")
        if number in sums and number in axes:
            raise RewriteError(f"{name} is said to be a sum over all parts and to carry the axis")
        if number not in sums and number not in axes:
            raise RewriteError(
                f"{name} leaves the region, and is neither a sum nor carries the axis",
                next_step="leave outside what makes it, or say how its parts are merged",
            )
        if number in axes and axes[number].outer > 1:
            raise RewriteError(f"{name} leaves the region, and a part of it lies in several places")
    return outputs
