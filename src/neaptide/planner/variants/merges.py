"""What a variant can do besides parts: rewrites that cost neither bytes nor time in program order, and joins that need not be made.

Copies of copies are made once, products add to what they would be added to, and results take the bytes of operands that
nobody needs any more. That is done last, in the graph and in the bodies of its loops: a region whose operand is overwritten
inside it could not run in parts.

A convolution of pieces takes the bytes of the join in front of it away, and takes longer than one of the join. So does each join
have a price of its own: where channels are many and pictures small, there is little to win and much to lose.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from neaptide.errors import RewriteError
from neaptide.ir.edits.edit import Edited
from neaptide.ir.graph import Graph
from neaptide.planner.strategies.program_order import baseline
from neaptide.planner.variants.choices import Choice, Choices, body_at, ladder
from neaptide.planner.variants.variant import Decision, Variant
from neaptide.schedule.problem import StepProblem
from neaptide.transform.rewrite import Rewrite, apply_rule
from neaptide.transform.rules import RULES

# In this order: what a product overwrites is no operand of a sum any more, and what is overwritten is copied no more.
_OVERWRITES: Final = "in_place"
_FREE: Final = ("redundant_copies", "accumulate_in_gemm", _OVERWRITES)

_RULE: Final = RULES["concat_before_convolution"]
_LABEL: Final = "convolutions of pieces"


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
    """The loops of a graph, the innermost first, and the graph itself at the end: a change moves no path after it."""
    for node in graph.nodes:
        if node.regions:
            for path in _paths(node.regions[0].body):
                yield (node.id, *path)
    yield ()


@dataclass(frozen=True, slots=True)
class Join:
    """A join that a variant can do without, and what convolutions of its pieces take longer; below 0 where they are faster."""

    name: str
    nbytes: int
    seconds: float


def joins(variant: Variant, choices: Choices, problem: Callable[[Graph], StepProblem]) -> list[Join]:
    """The joins of a variant that need not be made, in program order. O(joins times size)."""
    step, found = problem(variant.graph), []
    before = baseline(step)
    for rewrite in _RULE.find(variant.graph, choices.registry):
        joined = variant.graph.values[variant.graph.nodes[rewrite.nodes[0]].outputs[0]]
        assert joined.storage is not None
        without = baseline(problem(variant.then(choices.registry, [rewrite]).graph))
        longer = without.seconds - before.seconds
        found.append(Join(joined.name, step.storage_bytes[joined.storage], longer))
    return found


def without_joins(variant: Variant, choices: Choices, names: Collection[str] | None = None) -> Variant:
    """A variant whose convolutions read the pieces of what they read joined. O(rewrites times size)."""

    def objection(edited: Edited) -> str | None:
        return choices.objection(variant.edited.then(edited))

    def is_meant(graph: Graph, rewrite: Rewrite) -> bool:
        name = graph.values[graph.nodes[rewrite.nodes[0]].outputs[0]].name
        if names is not None and name not in names:
            return False
        apart.append(name)
        return True

    apart: list[str] = []
    made = apply_rule(variant.graph, choices.registry, _RULE, objection, is_meant)
    if not made.rewrites:
        return variant
    others = sum(1 for _ in _RULE.find(made.edited.graph, choices.registry))
    label = f"{_LABEL} at {len(made.rewrites)} of {len(made.rewrites) + others} joins" if others else _LABEL
    decisions = (*variant.decisions, Decision(label, names=tuple(apart)))
    return Variant(decisions, (*variant.rewrites, *made.rewrites), variant.edited.then(made.edited))


def with_one_join_more(
    decisions: Sequence[Decision], known: Sequence[Join], share_per_second: float, peak_bytes: int
) -> list[Decision] | None:
    """The decisions with the join made after all whose time is worth most beside its bytes; None where none is worth more.

    One by one: each that is made again buys time, and what the next buys is worth less.

    Args:
        share_per_second: part of what a peak is above the caller's bytes that a second of recomputation takes away.
        peak_bytes: of that peak, above them.
    """
    apart = {name for decision in decisions for name in decision.names or ()}
    dear = [
        join
        for join in known
        if join.name in apart and share_per_second * join.seconds > join.nbytes / peak_bytes
    ]
    if not dear:
        return None
    apart.remove(max(dear, key=lambda join: (join.seconds / join.nbytes, join.name)).name)
    return [
        decision
        if decision.names is None
        else replace(decision, names=tuple(name for name in decision.names if name in apart))
        for decision in decisions
    ]


def followed(begun: Variant, decisions: Sequence[Decision], choices: Choices) -> Variant:
    """A variant after as many decisions, in their order, as are found again in its graph; the others are left out.

    Costs what it takes to find the choices after each of them.
    """
    variant = begun
    for decision in decisions:
        if decision.names is not None:
            variant = without_joins(variant, choices, decision.names)
            continue
        found = _again(choices.after(variant), decision)
        variant = (choices.taken(*found) if found else None) or variant
    return variant


def _again(choices: Sequence[Choice], decision: Decision) -> tuple[Choice, int] | None:
    """The choice, and the number of parts, that a decision describes; of several the one of about as many bytes."""
    meant = [
        (choice, parts)
        for choice in choices
        for parts in ladder(choice.length)
        if choice.described(parts) == decision.label
    ]
    return min(meant, key=lambda one: abs(one[0].nbytes - decision.nbytes), default=None)
