"""A legal change of a graph as plain data, the rules that find and apply such changes, and their replay.

A variant of a graph is a list of rewrites. Each names nodes of the graph that the rewrites before it make, so that the
list can be stored in a plan, and whoever has the captured graph can build the variant again and check it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Annotated, Final, NamedTuple, TypeAlias

import msgspec

from neaptide.errors import RewriteError, SymbolicError
from neaptide.ir.edits.edit import Edited, GraphEdit
from neaptide.ir.graph import Graph
from neaptide.ir.loops.maps import Binding, trips
from neaptide.ir.nodes import Node
from neaptide.ir.registry import OpRegistry

_NodeId = Annotated[int, msgspec.Meta(ge=0)]

Setting: TypeAlias = bool | int | str | tuple[int, ...]

Sizes: TypeAlias = tuple[Binding, ...]
"""Values of the symbolic dims that a graph runs under: in the body of a loop those of a full part first, and those of the
last part where it is shorter."""

STATIC: Final[Sizes] = ({},)
"""Of a graph without symbolic dims."""


FORMER_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "copied_once": "redundant_copies",
        "draws_apart": "split_dropout",
        "equal_operations": "common_subexpressions",
        "gradients_apart": "split_convolution_backward",
        "made_again": "rematerialisation",
        "mean_as_sum": "mean_to_sum",
        "piecewise_convolutions": "concat_before_convolution",
        "product_sums": "accumulate_in_gemm",
    }
)
"""Rules by the names that they had before 0.1.0. Plan files and options may use them until 0.2."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One change of one graph, or of the body of one of its loops. It says nothing that is believed: `Rule.apply` checks it.

    Attributes:
        nodes: ids of the nodes that it is about, in the graph or body that it changes; what each is for, the rule says.
        settings: what else the rule needs to know, as (name, setting) in the order of the names.
        keeps_bits: every output has the same bits as before; otherwise sums are taken in another order.
        within: the loop whose body it changes: ids of nodes with a loop, the one in the graph, the one in its body, and
            so on, to the loop itself. Empty for the graph.
    """

    rule: str
    nodes: tuple[_NodeId, ...]
    settings: tuple[tuple[str, Setting], ...] = ()
    keeps_bits: bool = True
    within: tuple[_NodeId, ...] = ()

    def moved(self, edited: Edited) -> Rewrite | None:
        """The same change of a graph that was edited meanwhile; None where one of its nodes is gone. O(size)."""
        node_id = {old: new for new, old in enumerate(edited.node_of) if old >= 0}
        named = self.within[:1] or self.nodes
        if not all(node in node_id for node in named):
            return None
        there = tuple(node_id[node] for node in named)
        if not self.within:
            return replace(self, nodes=there)
        inner: Rewrite | None = replace(self, within=self.within[1:])
        if inner is not None and there[0] in edited.bodies:
            inner = inner.moved(edited.bodies[there[0]])
        return None if inner is None else replace(inner, within=(*there, *inner.within))


def refused(node: Node, what: str) -> RewriteError:
    """Why a rewrite may not change a node, with its operation in front, and where the user called it."""
    return RewriteError(f"{node.op} {what}", where=node.source.location or None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One kind of change. A rule matches traits of operations, never their names.

    `find` gives the same again and leaves the graph as it is. All that it finds may be done, and `keeps_bits` is kept. A rewrite
    that `find` did not give is refused, or as harmless. `tests/transform/test_rule_conformance.py` holds each rule of `RULES`
    to this, `tests/transform/passes/test_pass_conformance.py` each of `PASSES`.

    A rule knows no costs. What one of its rewrites costs is the difference that it makes to program order under a cost model.

    Attributes:
        summary: one line for `explain`: what it does, as "equal operations run once".
        find: places where it can be applied, in program order; none of alternatives, and none of an operation that the
            registry has no row for.
        apply: the changed graph, with the same inputs, and as many outputs that mean the same, in the same order. It is told
            the sizes that the graph runs under, where dims are symbolic. What is not legal in the graph is a
            `RewriteError`: a rule checks all that `find` would have checked, as the rewrite may come from a file.
        keeps_bits: what its rewrites say of themselves. One that depends on the place is two rules.
        each_node: whether every node of a rewrite is a place of its own; else they are one together.
        are_alternatives: whether prices choose among its places; else all that it finds may be taken together.
    """

    name: str
    summary: str
    find: Callable[[Graph, OpRegistry], Iterable[Rewrite]]
    apply: Callable[[Graph, OpRegistry, Rewrite, Sizes], Edited]
    keeps_bits: bool = True
    each_node: bool = False
    are_alternatives: bool = False


def replay(
    graph: Graph, registry: OpRegistry, rewrites: Sequence[Rewrite], rules: Mapping[str, Rule]
) -> Edited:
    """The graph after some rewrites, each of the graph that those before it make. O(rewrites times size).

    A `RewriteError` says which one names an unknown rule or a node that is not there, or is not legal in its graph.
    """
    made = Edited.unchanged(graph)
    for position, rewrite in enumerate(rewrites):
        try:
            edited = apply_rewrite(made.graph, registry, rewrite, rules)
        except RewriteError as error:
            raise RewriteError(
                f"rewrite {position} ({rewrite.rule}) cannot be applied: {error.what}", where=error.where
            ) from error
        made = made.then(edited)
    return made


def apply_rewrite(
    graph: Graph,
    registry: OpRegistry,
    rewrite: Rewrite,
    rules: Mapping[str, Rule],
    sizes: Sizes = STATIC,
) -> Edited:
    """The graph after one rewrite, checked; `sizes` are those that it runs under. O(size of it and of the bodies on the way)."""
    if rewrite.within:
        return _applied_within(graph, registry, rewrite, rules, sizes)
    rule = rules.get(rewrite.rule)
    if rule is None:
        raise RewriteError(f"there is no rule of that name, only {', '.join(sorted(rules))}")
    if missing := [node for node in rewrite.nodes if not 0 <= node < len(graph.nodes)]:
        raise RewriteError(f"node {missing[0]} is none of the {len(graph.nodes)} of its graph")
    if rewrite.keeps_bits != rule.keeps_bits:
        says = "keeps" if rewrite.keeps_bits else "does not keep"
        raise RewriteError(f"it says that it {says} the bits, and its rule says otherwise")
    try:
        edited = rule.apply(graph, registry, rewrite, sizes)
    except SymbolicError as error:
        raise RewriteError(f"it needs numbers where sizes follow from a part: {error.what}") from error
    _check_interface(graph, edited)
    return edited


class Rewritten(NamedTuple):
    """A graph after everything that was found in it, and what was done, to be replayed from the graph that went in."""

    edited: Edited
    rewrites: tuple[Rewrite, ...]


def apply_rule(
    graph: Graph,
    registry: OpRegistry,
    rule: Rule,
    objection: Callable[[Edited], str | None] = lambda _: None,
    is_meant: Callable[[Graph, Rewrite], bool] = lambda _graph, _rewrite: True,
) -> Rewritten:
    """Apply a rule wherever it finds that it can be, again and again as long as nodes go. O(rewrites times size).

    An `objection` says why a changed graph is not wanted, for reasons that the graph does not tell.
    """
    made = Edited.unchanged(graph)
    rewrites: list[Rewrite] = []
    count = len(graph.nodes) + 1
    while len(made.graph.nodes) < count:
        count = len(made.graph.nodes)
        now = Edited.unchanged(made.graph)  # changes since the rule looked
        for found in rule.find(made.graph, registry):
            here = found.moved(now) if is_meant(made.graph, found) else None
            if here is None:
                continue  # not meant, or one before it took a node away; the next round looks again
            try:
                later = now.then(apply_rewrite(now.graph, registry, here, {rule.name: rule}))
            except RewriteError:
                continue  # legal before others in this round, not after them
            if objection(made.then(later)) is None:
                now = later
                rewrites.append(here)
        made = made.then(now)
    return Rewritten(made, tuple(rewrites))


def sizes_within(graph: Graph, loop: int, sizes: Sizes = STATIC) -> Sizes:
    """The sizes that the body of a loop runs under, those of a full part first. O(slices of the loop)."""
    node = graph.nodes[loop]
    found: list[Binding] = []
    for around in sizes:
        found += (inside for _, inside in trips(graph, node, node.regions[0], around) if inside not in found)
    return tuple(found)


def _applied_within(
    graph: Graph, registry: OpRegistry, rewrite: Rewrite, rules: Mapping[str, Rule], sizes: Sizes
) -> Edited:
    """The graph after a rewrite of the body of one of its loops."""
    loop, *further = rewrite.within
    if not loop < len(graph.nodes) or not graph.nodes[loop].regions:
        raise RewriteError(f"node {loop} is no loop, and nothing is within it")
    body = graph.nodes[loop].regions[0].body
    inner = replace(rewrite, within=tuple(further))
    changed = apply_rewrite(body, registry, inner, rules, sizes_within(graph, loop, sizes))
    edit = GraphEdit(graph)
    edit.replace_body(loop, changed)
    return edit.finish()


def _check_interface(graph: Graph, edited: Edited) -> None:
    """A caller must be able to bind the inputs and outputs as before. What else holds, `GraphEdit.finish` verified."""
    after = edited.graph
    if tuple(edited.value_of[v] for v in after.inputs) != graph.inputs:
        raise RewriteError("it changes the inputs of the graph")
    before = [graph.values[v] for v in graph.outputs]
    now = [after.values[v] for v in after.outputs]
    if [(v.dtype, v.shape) for v in before] != [(v.dtype, v.shape) for v in now]:
        raise RewriteError("it changes the outputs of the graph")
    if _shared(graph) != _shared(after):
        raise RewriteError("it changes which inputs and outputs of the graph share bytes")


def _shared(graph: Graph) -> list[int | None]:
    """For each input and output, the first of them on its storage; None for what has none."""
    places = (graph.values[value].storage for value in (*graph.inputs, *graph.outputs))
    first: dict[int, int] = {}
    return [
        None if storage is None else first.setdefault(storage, place) for place, storage in enumerate(places)
    ]
