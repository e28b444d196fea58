"""What a search over variants looked at, and how low parts along its axes can go, for the reader of a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from neaptide.analysis.axes.carried import Carried
from neaptide.analysis.axes.follow import follow
from neaptide.analysis.axes.windows import follow_windows
from neaptide.ir.axes import Along
from neaptide.ir.registry import OpRegistry
from neaptide.planner.pricing import Pricing
from neaptide.planner.variants.choices import Choice, Choices
from neaptide.planner.variants.joins import without_joins
from neaptide.planner.variants.variant import Variant
from neaptide.plans import PartsRecord, TriedVariant
from neaptide.transform.fission.bound import parts_lower_bound_bytes
from neaptide.units import format_bytes


def parts_record(
    begun: Variant,
    choices: Sequence[Choice],
    tried: Sequence[TriedVariant],
    pricing: Pricing,
    known: Choices,
) -> PartsRecord:
    """The record of a search. O(axes of the choices x size of the graph), once for all searches of a program.

    Args:
        begun: what it went out from.
        choices: what may follow from that.
        tried: variants that were planned.
        pricing: of the graph.
        known: of all searches for this program; remembers the bound, and what was refused.
    """

    def bound() -> int:
        # Joins may go as well, and programs without them are the lower ones.
        apart = without_joins(begun, known)
        prices = pricing.prices(apart.graph)
        return parts_lower_bound_bytes(
            apart.graph,
            axes_of(apart, choices, pricing.registry),
            workspace=prices.own_workspace,  # bodies may run in parts as well
            storage_bytes=prices.storage_bytes,
            rewritten=pricing.registry,
        )

    return PartsRecord(
        tuple(map(_in_words, choices)), tuple(tried), known.bound_behind(begun, bound), tuple(known.refusals)
    )


def axes_of(begun: Variant, choices: Sequence[Choice], registry: OpRegistry) -> tuple[Carried, ...]:
    """Each axis of the choices once, followed through all but the updates. O(axes x nodes)."""
    graph = begun.graph
    choices = [choice for choice in choices if not choice.within]
    nodes = [node.id for node in graph.nodes if node.source.phase != "optimizer"]
    found: list[Carried] = []
    for choice in choices:
        seeds = _seeds(begun, choice)
        if not any(
            known.length == choice.length
            and all(known.axes.get(value) == along for value, along in seeds.items())
            for known in found
        ):
            found.append(
                follow_windows(graph, registry, scaled, nodes).side_by_side(graph)
                if (scaled := choice.regions[0].scaled_seeds())
                else follow(graph, registry, seeds, choice.length, nodes)
            )
    return tuple(found)


def _in_words(choice: Choice) -> str:
    return f"{choice.described()}: {choice.length} long, {format_bytes(choice.nbytes)} made in parts"


def _seeds(begun: Variant, choice: Choice) -> Mapping[int, Along]:
    """Where the axis of a choice begins, in the graph that it follows from."""
    region = choice.regions[0]
    if choice.begun is begun:
        return region.seeds
    name, dim = region.origin
    return {value.id: Along(dim) for value in begun.graph.values if value.name == name}
