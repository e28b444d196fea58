"""What a variant can do besides: rewrites that cost neither bytes nor time in program order.

Copies of copies are made once, products add to what they would be added to, and results take the bytes of operands that
nobody needs any more. That is done last, in the graph and in the bodies of its loops: a region whose operand is overwritten inside it could not run in parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from neaptide.errors import RewriteError
from neaptide.ir.graph import Graph
from neaptide.planner.variants.choices import Choices, body_at
from neaptide.planner.variants.variant import Variant
from neaptide.transform.rewrite import Rewrite
from neaptide.transform.rules import RULES

# In this order: what a product overwrites is no operand of a sum any more, and what is overwritten is copied no more.
_OVERWRITES: Final = "in_place"
_FREE: Final = ("redundant_copies", "accumulate_in_gemm", _OVERWRITES)


def merged(variant: Variant, choices: Choices, *, keeps_operands: bool = False) -> Variant:
    """A variant after all free rewrites of its graph and of the bodies of its loops. O(rewrites times size).

    With `keeps_operands` nothing is overwritten in the bodies of loops: there each operation may run again.
    """
    for rule in _FREE:
        for path in tuple(_paths(variant.graph)):
            if keeps_operands and path and rule == _OVERWRITES:
                continue
            for found in RULES[rule].find(body_at(variant.graph, path), choices.registry):
                variant = _with(variant, replace(found, within=path), choices)
    return variant


def _with(variant: Variant, rewrite: Rewrite, choices: Choices) -> Variant:
    """A variant with one more rewrite; without it where that is not wanted."""
    try:
        made = variant.then(choices.registry, [rewrite])
        reason = choices.objection(made.edited)
    except RewriteError as error:
        reason = error.what
    if reason is None:
        return made
    choices.refuse(rewrite.rule, reason)
    return variant


def _paths(graph: Graph) -> Iterator[tuple[int, ...]]:
    """The loops of a graph, the innermost first, and the graph itself at the end: a change moves no path behind it."""
    for node in graph.nodes:
        if node.regions:
            for path in _paths(node.regions[0].body):
                yield (node.id, *path)
    yield ()
