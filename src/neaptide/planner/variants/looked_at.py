"""What a search over variants looked at, and how low parts along its axes can go, for the reader of a plan."""

from __future__ import annotations

from collections.abc import Sequence

from neaptide.planner.pricing import Pricing
from neaptide.planner.variants.variant import Variants
from neaptide.plans import PartsRecord, TriedVariant
from neaptide.transform.fission.bound import parts_lower_bound_bytes


def parts_record(variants: Variants, tried: Sequence[TriedVariant], pricing: Pricing) -> PartsRecord:
    """The record of a search. O(axes of the regions x size of the graph).

    Args:
        variants: of the graph.
        tried: those that were planned.
        pricing: of the graph.
    """
    graph = variants.begun.graph
    prices = pricing.prices(graph)
    bound = parts_lower_bound_bytes(
        graph, variants.axes(), workspace=prices.workspace, storage_bytes=prices.storage_bytes
    )
    return PartsRecord(variants.in_words(), tuple(tried), bound)
