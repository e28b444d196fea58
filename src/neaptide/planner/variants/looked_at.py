"""What a search over variants looked at, and how low parts along its axes can go, for the reader of a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from neaptide.analysis.axes.follow import Carried, follow
from neaptide.analysis.axes.windows import follow_windows
from neaptide.ir.axes import Along
from neaptide.ir.registry import OpRegistry
from neaptide.planner.pricing import Pricing
from neaptide.planner.variants.choices import Choice, Choices
from neaptide.planner.variants.merges import without_joins
from neaptide.planner.variants.met import VariantPlan
from neaptide.planner.variants.variant import Variant
from neaptide.plans import PartsRecord
from neaptide.transform.fission.bound import parts_lower_bound_bytes
from neaptide.units import format_bytes


def parts_record(made: VariantPlan, begun: Variant, pricing: Pricing, known: Choices) -> PartsRecord:
    """The record of a search. O(axes of the choices x size of the graph), once for all searches of a program."""
    if begun not in known.bounds:
        known.bounds[begun] = _bound(begun, made.choices, pricing, known)
    program, away = made.found.program, 0
    if program.offloads:
        # The bound counts what the caller owns; state may be on the host while operations run that do not touch it.
        step = pricing.problem(made.variant.graph)
        if any(step.state_bytes[offload.storage] for offload in program.offloads):
            away = sum(step.state_bytes)
    return PartsRecord(
        tuple(map(_in_words, made.choices)),
        made.tried,
        max(known.bounds[begun] - away, 0),
        tuple(known.refusals),
        known.left_out_after(begun),
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


def _bound(begun: Variant, choices: Sequence[Choice], pricing: Pricing, known: Choices) -> int:
    # Joins may go as well, and programs without them are the lower ones.
    apart = without_joins(begun, known)
    axes, prices = axes_of(apart, choices, pricing.registry), pricing.prices(apart.graph)
    return parts_lower_bound_bytes(
        apart.graph,
        axes,
        workspace=prices.own_workspace,  # bodies may run in parts as well
        storage_bytes=prices.storage_bytes,
        rewritten=pricing.registry,
    )


def _in_words(choice: Choice) -> str:
    return f"{choice.described()}: {choice.length} long, {format_bytes(choice.nbytes)} made in parts"


def _seeds(begun: Variant, choice: Choice) -> Mapping[int, Along]:
    """Where the axis of a choice begins, in the graph that it follows from."""
    region = choice.regions[0]
    if choice.begun is begun:
        return region.seeds
    name, dim = region.origin
    return {value.id: Along(dim) for value in begun.graph.values if value.name == name}
