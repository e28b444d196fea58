"""What a search over variants looked at, and how low parts along its axes can go, for the reader of a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from neaptide.analysis.axes.follow import Carried, follow
from neaptide.analysis.axes.windows import follow_windows
from neaptide.ir.axes import Along
from neaptide.ir.graph import Graph
from neaptide.ir.registry import OpRegistry
from neaptide.planner.pricing import Pricing
from neaptide.planner.variants.choices import Choice, Choices, PartsBound, levels_of
from neaptide.planner.variants.joins import without_joins
from neaptide.planner.variants.met import VariantPlan
from neaptide.planner.variants.variant import Variant
from neaptide.plans import PartsRecord
from neaptide.transform.fission.bound import parts_lower_bound_bytes
from neaptide.units import format_bytes


def parts_record(made: VariantPlan, begun: Variant, pricing: Pricing, known: Choices) -> PartsRecord:
    """The record of a search. O(axes of the choices x size of the graph), once for all searches of a program."""
    if begun not in known.bounds:
        known.bounds[begun] = _bound(begun, made.choices, pricing, known)
    bound = known.bounds[begun]
    program, away = made.found.program, 0
    if program.stays:
        # The bound counts what the caller owns; state may be on the host while operations run that do not touch it.
        step = pricing.problem(made.variant.graph)
        if any(step.state_bytes[stay.storage] for stay in program.stays):
            away = sum(step.state_bytes)
    parts = most_parts(made.variant.graph)
    at_most = max(bound(parts) - away, 0) if parts > 1 else 0
    # A plan below it has parts along another axis, which was found later.
    tells = 0 < at_most <= program.predictions.peak_with_workspace_bytes
    return PartsRecord(
        tuple(map(_in_words, made.choices)),
        made.tried,
        max(bound(None) - away, 0),
        tuple(known.refusals),
        known.left_out_after(begun),
        parts if parts > 1 else 0,
        at_most if tells else 0,
    )


def most_parts(graph: Graph) -> int:
    """The most parts along one axis; 1 without loops. O(size).

    Where a loop cuts what a loop around it has cut before, both may run along one axis, and their trips multiply. In a body
    the extent of such a dim follows from the length of a part, and other extents are numbers.
    """
    found: dict[tuple[int, ...], int] = {(): 1}
    for level in levels_of(graph):
        around = found[level.within]
        for node in level.full.nodes:
            inputs = [level.graph.values[value] for value in node.inputs]
            for loop in node.regions:
                again = not all(inputs[part.input].shape[part.axis].is_constant for part in loop.slices)
                trips = loop.trip_count.constant_value() * (around if again else 1)
                found[*level.within, node.id] = max(trips, around)
    return max(found.values())


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


def _bound(begun: Variant, choices: Sequence[Choice], pricing: Pricing, known: Choices) -> PartsBound:
    # Joins may go as well, and programs without them are the lower ones.
    apart = without_joins(begun, known)
    axes, prices = axes_of(apart, choices, pricing.registry), pricing.prices(apart.graph)

    @cache
    def bound(most: int | None) -> int:
        return parts_lower_bound_bytes(
            apart.graph,
            axes,
            most,
            workspace=prices.own_workspace,  # bodies may run in parts as well
            storage_bytes=prices.storage_bytes,
            rewritten=pricing.registry,
        )

    return bound


def _in_words(choice: Choice) -> str:
    return f"{choice.described()}: {choice.length} long, {format_bytes(choice.nbytes)} made in parts"


def _seeds(begun: Variant, choice: Choice) -> Mapping[int, Along]:
    """Where the axis of a choice begins, in the graph that it follows from."""
    region = choice.regions[0]
    if choice.begun is begun:
        return region.seeds
    name, dim = region.origin
    return {value.id: Along(dim) for value in begun.graph.values if value.name == name}
